"""The domains of a call, opened from what a user named; all runs of the call share them."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dial.data.datasets import open_domains
from dial.data.domain import Domain, Domains, LabelledDomain, merge, short_names
from dial.errors import DialError
from dial.training.launch import Execution

Place = str | os.PathLike[str] | Domain
"""What a domain is opened from."""


@dataclass(frozen=True)
class Job:
    """What all runs of one call share: the domains, what they were opened from, the execution."""

    sources: tuple[LabelledDomain, ...]
    targets: tuple[Domain, ...]
    inputs: dict[str, Any]
    execution: Execution

    @property
    def domains(self) -> Domains:
        """All sources and all targets."""
        return self.sources, self.targets

    def merged(self) -> "Job":
        """Returns the same job with all sources as one."""
        return replace(self, sources=(merge(self.sources),))

    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the names of sources and targets in the DA-layers and of the targets' folders."""
        if len(self.sources) == len(self.targets) == 1:
            return ("source",), ("target",)
        names = tuple(short_names([*self.sources, *self.targets]))
        return names[: len(self.sources)], names[len(self.sources) :]


def open_job(inputs: dict[str, Any], execution: Execution) -> Job:
    """Open all domains; no image is read yet."""
    source, target = (listed(inputs[name]) for name in ("source", "target"))
    if not source or not target:
        raise DialError(
            wanted="a source and a target",
            got=f"{', '.join(map(str, source))} alone" if source else "none",
            fix="name both, or repeat a run with --config RUN/config.json",
        )
    unlabelled = bool(inputs["unlabelled"])
    sources, targets = open_domains(source, target, data=inputs["data"], unlabelled=unlabelled)
    places: dict[str, Any] = {"data": _absolute(inputs["data"]), "unlabelled": unlabelled}
    for name, domains in (("source", source), ("target", target)):
        paths = [_absolute(place) for place in domains]
        named = paths[0] if len(paths) == 1 else paths
        places[name] = None if None in paths else named  # objects cannot be opened again
    return Job(sources, targets, places, execution)


def listed(places: Any) -> list[Any] | None:
    """Returns one place or several as a list."""
    if places is None:
        return None
    single = isinstance(places, str | os.PathLike | Domain)
    return [places] if single else [*places]


def _absolute(place: Any) -> str | None:
    """Returns a path that holds from any folder, a known domain's name as it is."""
    if place is None or isinstance(place, Domain):
        return None
    path = Path(place).expanduser()
    return str(path.resolve()) if path.exists() else os.fspath(place)
