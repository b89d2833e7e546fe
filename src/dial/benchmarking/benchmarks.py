"""The named benchmarks: their tasks and rows, and the paper's results to compare with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from dial import methods
from dial.benchmarking.paper import TABLE_1, TABLE_2, TASKS, PaperRow
from dial.errors import DialError

SPARSITY = 0.01
"""Weight of the L1 penalty in the sparse rows: the paper gives none, Ren et al. a light one."""

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A transfer from one domain to another, or from several, or to several."""

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def domains(self) -> tuple[str, ...]:
        """All sources and targets."""
        return self.sources + self.targets

    @property
    def key(self) -> str:
        """The name in paths and on the command line."""
        return self.name.replace("->", "-")


@dataclass(frozen=True)
class Row:
    """A row of the table: a method with some of its settings."""

    name: str
    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    inherits: tuple[str, ...] = ()  # settings of the preset, although that is for another method
    on_request: bool = False  # runs only if named

    @property
    def entropy(self) -> bool:
        """Whether the target's entropy is part of the loss."""
        return (
            self.method in ("dial", "autodial", "entropy_only") and self.options.get("entropy") != 0
        )


@dataclass(frozen=True)
class Benchmark:
    """A grid of tasks and rows."""

    name: str
    title: str
    preset: str
    tasks: tuple[Task, ...]
    rows: tuple[Row, ...]
    paper: tuple[PaperRow, ...] = ()
    ablation: bool = False  # rows come with and without entropy, and are drawn as bars

    def choose_tasks(self, names: str | None) -> tuple[Task, ...]:
        """The tasks that a list like `A-W,amazon-dslr` names; all of them for None."""
        if names is None:
            return self.tasks
        aliases: dict[str, Task] = {}
        for task in self.tasks:
            sides = (
                "+".join(domain.partition(":")[2] for domain in side)
                for side in (task.sources, task.targets)
            )
            aliases |= {task.key.lower(): task, "-".join(sides): task}
        about = f"tasks of {self.name} ({', '.join(task.key for task in self.tasks)})"
        return tuple(dict.fromkeys(_look_up(names.lower().replace("->", "-"), aliases, about)))

    def choose_rows(self, names: str | None) -> tuple[Row, ...]:
        """The rows that a list like `dial,source_only` names; all but those on request for None."""
        if names is None:
            return tuple(row for row in self.rows if not row.on_request)
        by_name = {row.name: row for row in self.rows}
        about = f"rows of {self.name} ({', '.join(by_name)})"
        return _look_up(names.lower().replace("-", "_"), by_name, about)


def _look_up(names: str, entries: Mapping[str, T], about: str) -> tuple[T, ...]:
    """The entries that a list with commas names, in their own order."""
    parts = [part.strip() for part in names.split(",")]
    wrong = ", ".join(repr(part) for part in parts if part not in entries)
    if wrong:
        raise DialError(wanted=about, got=wrong, fix="choose among those, with commas between them")
    return tuple(entry for name, entry in entries.items() if name in parts)


_OFFICE = {"A": "amazon", "D": "dslr", "W": "webcam"}


def _office(name: str) -> Task:
    """Returns the task of a name like `A->W` or `A+D->W`."""
    sides = [side.split("+") for side in name.split("->")]
    sources, targets = (tuple(f"office31:{_OFFICE[letter]}" for letter in s) for s in sides)
    return Task(name, sources, targets)


_OFFICE_TASKS = tuple(map(_office, TASKS))
_DIGITS_TASKS = (
    Task("mnist->optdigits", ("digits:mnist",), ("digits:optdigits",)),
    Task("optdigits->mnist", ("digits:optdigits",), ("digits:mnist",)),
)

_LABELS = {
    "source_only": "Source only",
    "frozen": "Frozen, with a head",
    "entropy_only": "Entropy only",
    "ddc": "DDC",
    "dan": "DAN",
    "revgrad": "ReverseGrad",
    "adabn": "AdaBN",
    "adabn_coral": "AdaBN + CORAL",
    "dial": "DIAL",
}
_OTHERS = {  # a benchmark begins with the images of a source
    name: name
    for name in methods.names()
    if name not in _LABELS and methods.kind(name).needs_source
}
_METHODS = {name: Row(name, label, name) for name, label in (_LABELS | _OTHERS).items()}
"""Every method with the preset's options or its own defaults: the paper's and ours, then others."""


def _dial(name: str, label: str, **options: Any) -> Row:
    """A variant of DIAL; as in the paper its classifier starts at random and is kept."""
    paper = {"centroids": False, "start": "random", "head": False}
    return Row(name, label, "dial", paper | options)


_REFERENCES = (
    _dial("dial_bn", "DIAL BN", reference="normal"),
    _dial("dial_epsilon", "DIAL Epsilon", reference="epsilon"),
    _dial("dial_sparse", "DIAL sparse", reference="normal", sparsity=SPARSITY),
    _dial("dial_epsilon_sparse", "DIAL Epsilon sparse", reference="epsilon", sparsity=SPARSITY),
    _dial("dial_laplacian", "DIAL Laplacian BN", reference="laplace"),
)
_DISTRIBUTIONS = (  # every reference; all but Anchored, which is BN in a network from scratch
    *(row for row in _REFERENCES if "sparsity" not in row.options),
    _dial("dial_student", "DIAL Student's t", reference="student"),
    _dial("dial_logistic", "DIAL logistic", reference="logistic"),
    _dial("dial_generalized", "DIAL generalized normal", reference="generalized"),
    _dial("dial_whitened", "DIAL whitened, groups of 4", reference="whitened:4"),
    _dial("dial_per_domain", "DIAL BN, affine per domain", reference="normal", affine="per-domain"),
    replace(_METHODS["autodial"], label="AutoDIAL", inherits=("entropy", "delay", "warmup")),
)
_BATCH, _PROBE = {"statistics": "batch"}, {"start": "probe"}
_PRETRAINED = (
    # 'auto' and not 'anchored': without pretrained statistics there is nothing to be anchored to.
    _dial("dial_anchored", "DIAL Anchored", reference="auto"),
    _dial("dial_centroids", "DIAL Anchored, centroids", reference="auto", centroids=True),
    _dial("dial_probe", "DIAL Anchored, probe too", reference="auto", centroids=True, **_PROBE),
)
_SOURCE_ONLY = (
    Row("source_only_batch", "Source only, BatchNorm in training mode", "source_only", _BATCH),
    Row("source_only_probe", "Source only from the probe", "source_only", _PROBE),
)


def _ablation(*variants: Row) -> tuple[Row, ...]:
    """Variants of DIAL with the entropy and without it, and the network without DA-layers."""
    # The loss is the same with DA-layers and without.
    entropy_only = replace(_METHODS["entropy_only"], inherits=("entropy", "delay", "warmup"))
    without = (
        replace(row, name=f"{row.name}_no_entropy", options={**row.options, "entropy": 0.0})
        for row in variants
    )
    return (_METHODS["source_only"], _METHODS["frozen"], entropy_only, *variants, *without)


_COMPARED = [_METHODS[name] for name in _LABELS if name != "entropy_only"]
_REST = [_METHODS[name] for name in ("entropy_only", *_OTHERS)]
_ON_REQUEST = (*_SOURCE_ONLY, _REFERENCES[0], *_PRETRAINED, *_REST)
_TABLE_1 = (*_COMPARED, *(replace(row, on_request=True) for row in _ON_REQUEST))

_office31 = partial(Benchmark, preset="efficientnet_lite0", tasks=_OFFICE_TASKS)
_digits = partial(Benchmark, preset="digits_cnn", tasks=_DIGITS_TASKS)
_ALL = (
    _office31("office31", "Office-31 (Table 1 of the paper)", rows=_TABLE_1, paper=TABLE_1),
    _office31(
        "office31-ablation",
        "Office-31, ablation (Table 2 of the paper)",
        rows=_ablation(*_REFERENCES, *_PRETRAINED),
        paper=TABLE_2,
        ablation=True,
    ),
    _office31(
        "office31-multi",
        "Office-31, several sources or several targets",
        tasks=tuple(map(_office, ("A+D->W", "A+W->D", "D+W->A", "A->W+D", "W->A+D", "D->A+W"))),
        rows=(
            _METHODS["frozen"],
            _METHODS["dial"],
            Row("dial_merged", "DIAL, sources as one", "dial", {"merge_sources": True}),
        ),
    ),
    _digits("digits", "Embedded digits, all methods", rows=(*_METHODS.values(),)),
    _digits(  # trained from scratch, so that Anchored would be BN once more
        "digits-ablation", "Embedded digits, ablation", rows=_ablation(*_REFERENCES), ablation=True
    ),
    _digits("digits-references", "Embedded digits, every reference", rows=_DISTRIBUTIONS),
)
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}


def get(name: str) -> Benchmark:
    """A benchmark by its name.

    >>> len(get("office31").tasks)
    6
    """
    if name not in BENCHMARKS:
        wanted = f"one of the benchmarks {', '.join(BENCHMARKS)}"
        raise DialError(wanted=wanted, got=repr(name), fix="choose one of those")
    return BENCHMARKS[name]
