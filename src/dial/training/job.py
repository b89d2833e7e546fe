"""The domains of a call, opened from what a user named; all runs of the call share them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dial.data.datasets import open_domain, open_domains
from dial.data.domain import (
    Domain,
    Domains,
    LabelledDomain,
    as_labelled,
    merge,
    short_names,
)
from dial.data.folders import is_archive_name
from dial.errors import DialError
from dial.files import expand_home
from dial.training.launch import Execution

Place = str | os.PathLike[str] | Domain
"""What a domain is opened from."""


@dataclass(frozen=True)
class Job:
    """What all runs of one call share: the domains, what they were opened from, the execution."""

    sources: tuple[LabelledDomain, ...]
    """Empty if a run goes on from a finished model."""
    targets: tuple[Domain, ...]
    labelled: LabelledDomain | None
    """Images of the only target whose labels take part in training."""
    classes: tuple[str, ...]
    inputs: dict[str, Any]
    execution: Execution

    @property
    def domains(self) -> Domains:
        """All sources and all targets."""
        return self.sources, self.targets

    def merged(self) -> "Job":
        """Returns the same job with all sources as one."""
        return replace(self, sources=(merge(self.sources),)) if self.sources else self

    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the names of sources and targets in the DA-layers and of the targets' folders."""
        if len(self.sources) <= len(self.targets) == 1:
            return ("source",) * len(self.sources), ("target",)
        names = tuple(short_names([*self.sources, *self.targets]))
        return names[: len(self.sources)], names[len(self.sources) :]


def open_job(
    inputs: dict[str, Any], execution: Execution, *, classes: Sequence[str] | None = None
) -> Job:
    """Open all domains; no image is read yet.

    `classes` are those of the finished model to go on from, which takes the place of a source.
    """
    source, target = (listed(inputs[name]) or [] for name in ("source", "target"))
    if (not source and classes is None) or not target:
        raise DialError(
            wanted="a source and a target" if classes is None else "a target",
            got=f"{', '.join(map(str, source))} alone" if source else "none",
            fix="name both, repeat a run with --config RUN/config.json, or go on from a finished "
            "model with --from RUN TARGET"
            if classes is None
            else "dial adapt --from RUN TARGET",
        )
    if source and classes is not None:
        raise DialError(
            wanted="a target alone, to go on from a finished model",
            got=f"the source {', '.join(map(str, source))} too",
            fix="leave the source out, or --from",
        )
    data, unlabelled = inputs["data"], bool(inputs["unlabelled"])
    sources, targets = open_domains(
        source, target, data=data, unlabelled=unlabelled, classes=classes or ()
    )
    names = sources[0].labels.classes if sources else tuple(classes or ())
    places: dict[str, Any] = {"data": absolute(data), "unlabelled": unlabelled}
    for name, domains in (("source", source), ("target", target)):
        paths = [absolute(place) for place in domains]
        named = paths[0] if len(paths) == 1 else paths
        places[name] = None if None in paths or not paths else named  # objects are not opened again
    labelled = inputs.get("labelled")
    if labelled is None:
        return Job(sources, targets, None, names, places, execution)
    if len(targets) > 1:
        raise DialError(
            wanted="one target, which the labelled images are of",
            got=f"{len(targets)} targets",
            fix="adapt to each target in a run of its own, with its own --labelled",
        )
    given = as_labelled(open_domain(labelled, data=data), names)
    places["labelled"] = absolute(labelled)
    return Job(sources, targets, given, names, places, execution)


def listed(places: Any) -> list[Any] | None:
    """Returns one place or several as a list."""
    if places is None:
        return None
    single = isinstance(places, str | os.PathLike | Domain)
    return [places] if single else [*places]


def absolute(place: Any) -> str | None:
    """Returns a path that holds from any folder, or a known domain's name; None for an object."""
    if place is None or isinstance(place, Domain):
        return None
    path = expand_home(place)
    is_path = os.path.exists(path) or is_archive_name(path)  # answers False where Path raises
    return str(path.resolve()) if is_path else os.fspath(place)
