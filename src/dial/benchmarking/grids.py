"""What the named benchmarks are: tasks, rows, and the figures of the paper beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dial import methods
from dial.benchmarking.paper import NO_LAYERS, TABLE_1, TABLE_2, TASKS, PaperRow
from dial.errors import DialError

SPARSITY = 0.01
"""Weight of the L1 penalty in the sparse rows: the paper gives none, Ren et al. a light one."""


@dataclass(frozen=True)
class Task:
    """A transfer from one domain to another."""

    name: str
    source: str
    target: str

    @property
    def key(self) -> str:
        """The name in paths and on the command line."""
        return self.name.replace("->", "-")

    @property
    def aliases(self) -> tuple[str, str]:
        """What `--tasks` takes for it, in lower case: A-W or amazon-webcam."""
        domains = (part.partition(":")[2] for part in (self.source, self.target))
        return self.key.lower(), "-".join(domains)


@dataclass(frozen=True)
class Row:
    """A line of the table: a method with some of its settings."""

    name: str
    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    """The group of bars it belongs to in the figure."""
    inherits: tuple[str, ...] = ()
    """Settings taken over from the preset's, though that is of another method."""
    on_request: bool = False
    """Whether it runs only if named."""

    @property
    def entropy(self) -> bool:
        """Whether the target's entropy is part of the loss."""
        return self.method in ("dial", "entropy_only") and self.options.get("entropy") != 0


@dataclass(frozen=True)
class Benchmark:
    """A grid of tasks and rows."""

    name: str
    title: str
    preset: str
    tasks: tuple[Task, ...]
    rows: tuple[Row, ...]
    paper: tuple[PaperRow, ...] = ()
    ablation: bool = False
    """Whether its rows come with and without entropy, and are drawn as bars."""

    def choose_tasks(self, wanted: str | None) -> tuple[Task, ...]:
        """The tasks that a list like `A-W,amazon-dslr` names; all of them for None."""
        if wanted is None:
            return self.tasks
        known = {alias: task for task in self.tasks for alias in task.aliases}
        names = [name.lower().replace("->", "-") for name in _parts(wanted)]
        _check(names, known, f"tasks of {self.name} ({', '.join(task.key for task in self.tasks)})")
        chosen = {known[name] for name in names}
        return tuple(task for task in self.tasks if task in chosen)

    def choose_rows(self, wanted: str | None) -> tuple[Row, ...]:
        """The rows that a list like `dial,source_only` names; for None all that run by default."""
        if wanted is None:
            return tuple(row for row in self.rows if not row.on_request)
        known = {row.name: row for row in self.rows}
        names = [name.lower().replace("-", "_") for name in _parts(wanted)]
        _check(names, known, f"rows of {self.name} ({', '.join(known)})")
        return tuple(row for row in self.rows if row.name in names)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _check(names: list[str], known: Mapping[str, object], wanted: str) -> None:
    wrong = [name for name in names if name not in known]
    if wrong:
        raise DialError(
            wanted=wanted,
            got=", ".join(map(repr, wrong)),
            fix="choose among those, with commas between them",
        )


_OFFICE = {"A": "amazon", "D": "dslr", "W": "webcam"}
_OFFICE_TASKS = tuple(
    Task(name, f"office31:{_OFFICE[name[0]]}", f"office31:{_OFFICE[name[-1]]}") for name in TASKS
)
_DIGITS_TASKS = (
    Task("mnist->optdigits", "digits:mnist", "digits:optdigits"),
    Task("optdigits->mnist", "digits:optdigits", "digits:mnist"),
)

_LABELS = {
    "source_only": "Source only",
    "entropy_only": "Entropy only",
    "ddc": "DDC",
    "dan": "DAN",
    "revgrad": "ReverseGrad",
    "adabn": "AdaBN",
    "adabn_coral": "AdaBN + CORAL",
    "dial": "DIAL",
}
_OTHERS = {name: name for name in methods.names() if name not in _LABELS}
_METHODS = {name: Row(name, label, name) for name, label in (_LABELS | _OTHERS).items()}
"""Every method as the preset has it, or with its own defaults: the paper's, and then all others."""


def _dial(name: str, label: str, **options: Any) -> Row:
    """A variant of DIAL; like the paper's its classifier begins at random, and is kept."""
    paper = {"centroids": False, "start": "random"}
    return Row(name, label, "dial", paper | options, variant=label)


_REFERENCES = (
    _dial("dial_bn", "DIAL BN", reference="normal"),
    _dial("dial_epsilon", "DIAL Epsilon", reference="epsilon"),
    _dial("dial_sparse", "DIAL sparse", reference="normal", sparsity=SPARSITY),
    _dial("dial_epsilon_sparse", "DIAL Epsilon sparse", reference="epsilon", sparsity=SPARSITY),
    _dial("dial_laplacian", "DIAL Laplacian BN", reference="laplace"),
)
_PRETRAINED = (
    # 'auto' and not 'anchored': without pretrained statistics there is nothing to be anchored to.
    _dial("dial_anchored", "DIAL Anchored", reference="auto"),
    _dial("dial_centroids", "DIAL Anchored, centroids", reference="auto", centroids=True),
    _dial(
        "dial_probe", "DIAL Anchored, probe too", reference="auto", centroids=True, start="probe"
    ),
)
_SOURCE_ONLY = (
    Row(
        "source_only_batch",
        "Source only, BatchNorm in training mode",
        "source_only",
        {"statistics": "batch"},
    ),
    Row("source_only_probe", "Source only from the probe", "source_only", {"start": "probe"}),
)


def _on_request(*rows: Row) -> tuple[Row, ...]:
    return tuple(replace(row, on_request=True) for row in rows)


def _ablation(*variants: Row) -> tuple[Row, ...]:
    """Variants of DIAL with the entropy and without it, and the network without DA-layers."""
    source_only, entropy_only = (
        replace(_METHODS[name], variant=NO_LAYERS) for name in ("source_only", "entropy_only")
    )
    # Its loss is the same with DA-layers and without.
    entropy_only = replace(entropy_only, inherits=("entropy", "warmup"))
    without = (
        replace(row, name=f"{row.name}_no_entropy", options={**row.options, "entropy": 0.0})
        for row in variants
    )
    return (source_only, entropy_only, *variants, *without)


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "office31",
            "Office-31 (Table 1 of the paper)",
            "efficientnet_lite0",
            _OFFICE_TASKS,
            (
                *(
                    row
                    for name, row in _METHODS.items()
                    if name in _LABELS.keys() - {"entropy_only"}
                ),
                *_on_request(*_SOURCE_ONLY, _REFERENCES[0], *_PRETRAINED[:2]),
                *_on_request(*(_METHODS[name] for name in ("entropy_only", *_OTHERS))),
            ),
            paper=TABLE_1,
        ),
        Benchmark(
            "office31-ablation",
            "Office-31, ablation (Table 2 of the paper)",
            "efficientnet_lite0",
            _OFFICE_TASKS,
            _ablation(*_REFERENCES, *_PRETRAINED),
            paper=TABLE_2,
            ablation=True,
        ),
        Benchmark(
            "digits",
            "Embedded digits, all methods",
            "digits_cnn",
            _DIGITS_TASKS,
            (*_METHODS.values(),),
        ),
        Benchmark(
            "digits-ablation",
            "Embedded digits, ablation",
            "digits_cnn",
            _DIGITS_TASKS,
            # Trained from scratch, so that Anchored would be BN once more.
            _ablation(*_REFERENCES),
            ablation=True,
        ),
    )
}


def get(name: str) -> Benchmark:
    """A benchmark by its name.

    Raises:
        DialError: there is no such benchmark.

    >>> len(get("office31").tasks)
    6
    """
    if name not in BENCHMARKS:
        raise DialError(
            wanted=f"one of the benchmarks {', '.join(BENCHMARKS)}",
            got=repr(name),
            fix="choose one of those",
        )
    return BENCHMARKS[name]
