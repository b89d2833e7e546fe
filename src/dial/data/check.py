"""What two domains hold, found out before any training: counts, sizes, bad files, duplicates."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dial.data.cache import Entry, survey
from dial.data.domain import Domain, ImageArray, ImageFiles, scoring_labels
from dial.data.folders import shown
from dial.data.pixels import array_digests
from dial.data.reading import bad_files_error
from dial.errors import DialError

_SIDE = 64  # images are only looked at, so a small copy will do


@dataclass(frozen=True)
class DomainReport:
    """One domain: `sizes` counts images by `width x height`, `duplicates` are groups of names."""

    name: str
    images: int
    classes: dict[str, int] | None
    sizes: dict[str, int]
    bad: dict[str, str]
    duplicates: list[list[str]]
    mislabelled: list[list[str]]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class CheckReport:
    """Both domains, what they have in common that they should not, and what stops a run."""

    source: DomainReport
    target: DomainReport
    shared: list[list[str]]
    problems: list[str]

    @property
    def ok(self) -> bool:
        """Whether training could begin."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {"ok": self.ok, **asdict(self)}


def check(
    source: Domain, target: Domain, *, skip_bad: bool = False, quiet: bool = False
) -> CheckReport:
    """Read every image of both domains and report; nothing is written.

    Problems are what would stop a run: a source without classes, target classes that the source
    does not have, bad files (but not with `skip_bad`). Duplicates do not stop a run.
    """
    entries = [_look(domain, quiet=quiet) for domain in (source, target)]
    problems = []
    try:
        scoring_labels(source, target)
    except DialError as error:
        problems.append(str(error))
    bad = {
        domain.images.paths[row]: reason
        for domain, entry in zip((source, target), entries, strict=True)
        if isinstance(domain.images, ImageFiles)
        for row, reason in entry.bad.items()
    }
    if bad and not skip_bad:
        problems.append(str(bad_files_error(bad, total=len(source.images) + len(target.images))))
    return CheckReport(
        source=_report(source, entries[0]),
        target=_report(target, entries[1]),
        shared=_shared(source, target, entries),
        problems=problems,
    )


def _look(domain: Domain, *, quiet: bool) -> Entry:
    if isinstance(domain.images, ImageArray):
        count, height, width, _ = domain.images.pixels.shape
        sizes = np.full((count, 2), (width, height), dtype=np.int32)
        return Entry(None, array_digests(domain.images.pixels), sizes, {})
    paths, doing = domain.images.paths, f"checking {domain.name}"
    return survey(paths, resize=_SIDE, doing=doing, quiet=quiet)


def _report(domain: Domain, entry: Entry) -> DomainReport:
    groups = [rows for rows in _same(entry).values() if len(rows) > 1]
    labels = domain.labels
    mixed = [rows for rows in groups if labels and len(set(labels.indices[rows].tolist())) > 1]
    distinct, counts = np.unique(entry.sizes[entry.good], axis=0, return_counts=True)
    largest_first = sorted(zip(counts.tolist(), distinct.tolist(), strict=True), reverse=True)
    return DomainReport(
        name=domain.name,
        images=len(domain.images),
        classes=labels.counts if labels else None,
        sizes={f"{width}x{height}": count for count, (width, height) in largest_first},
        bad={_name(domain, row): reason for row, reason in entry.bad.items()},
        duplicates=[_names(domain, rows) for rows in groups],
        mislabelled=[_names(domain, rows) for rows in mixed],
        notes=domain.notes,
    )


def _shared(source: Domain, target: Domain, entries: list[Entry]) -> list[list[str]]:
    ours, theirs = (_same(entry) for entry in entries)
    both = [digest for digest in ours if digest in theirs]
    return [_names(source, ours[key]) + _names(target, theirs[key]) for key in both]


def _same(entry: Entry) -> dict[bytes, list[int]]:
    """Rows by the hash of their content."""
    rows: dict[bytes, list[int]] = defaultdict(list)
    for row in entry.good.tolist():
        rows[entry.digests[row].tobytes()].append(row)
    return rows


def _names(domain: Domain, rows: Iterable[int]) -> list[str]:
    return [_name(domain, row) for row in rows]


def _name(domain: Domain, row: int) -> str:
    if isinstance(domain.images, ImageFiles):
        return shown(domain.images.paths[row])
    return f"{domain.name} image {row}"
