"""What two domains hold, before any training: counts, sizes, bad files, duplicates."""

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dial.data.cache import survey
from dial.data.decode import bad_files_error
from dial.data.domain import Domain, as_source, scoring_labels
from dial.errors import DialError

_SIDE = 64  # the pixels are not kept, so a small copy is enough


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
    """Both domains, the images that are in both, and the problems that prevent a run."""

    source: DomainReport
    target: DomainReport
    shared: list[list[str]]
    problems: list[str]

    @property
    def ok(self) -> bool:
        """Whether training could begin."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Returns everything, for JSON."""
        return {"ok": self.ok, **asdict(self)}


def check(
    source: Domain, target: Domain, *, skip_bad: bool = False, quiet: bool = False
) -> CheckReport:
    """Read every image of both domains and report on them; nothing is written.

    Problems are what would prevent a run: a source without classes, target classes that the source
    does not have, bad files (unless `skip_bad`). Duplicates do not prevent a run.
    """
    (ours, mine), (theirs, yours) = (_survey(domain, quiet=quiet) for domain in (source, target))
    problems = []
    try:
        scoring_labels(as_source(source), target)
    except DialError as error:
        problems.append(str(error))
    bad = ours.bad | theirs.bad
    if bad and not skip_bad:
        problems.append(str(bad_files_error(bad, total=ours.images + theirs.images)))
    shared = [mine[digest] + yours[digest] for digest in mine if digest in yours]
    return CheckReport(source=ours, target=theirs, shared=shared, problems=problems)


def _survey(domain: Domain, *, quiet: bool) -> tuple[DomainReport, dict[bytes, list[str]]]:
    """Read a domain. Returns its report, and the names of its images by a hash of their content."""
    entry = survey(domain.images, resize=_SIDE, title=f"checking {domain.name}", quiet=quiet)
    labels, names = domain.labels, domain.images.names
    by_content: dict[bytes, list[int]] = defaultdict(list)
    for row in entry.good.tolist():
        by_content[entry.digests[row].tobytes()].append(row)
    groups = [rows for rows in by_content.values() if len(rows) > 1]
    mixed = [rows for rows in groups if labels and len(set(labels.indices[rows].tolist())) > 1]
    distinct, counts = np.unique(entry.sizes[entry.good], axis=0, return_counts=True)
    largest_first = sorted(zip(counts.tolist(), distinct.tolist(), strict=True), reverse=True)
    report = DomainReport(
        name=domain.name,
        images=len(domain.images),
        classes=labels.counts if labels else None,
        sizes={f"{width}x{height}": count for count, (width, height) in largest_first},
        bad={names[row]: reason for row, reason in entry.bad.items()},
        duplicates=[[names[row] for row in rows] for rows in groups],
        mislabelled=[[names[row] for row in rows] for rows in mixed],
        notes=domain.notes,
    )
    return report, {key: [names[row] for row in rows] for key, rows in by_content.items()}
