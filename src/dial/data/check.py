"""What the domains of a run hold, before any training: counts, sizes, bad files, duplicates."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np

from dial.data.cache import survey
from dial.data.decode import bad_files_error
from dial.data.domain import Domain, as_source, scoring_labels, share_classes
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
    """All domains, the images that are in more than one, and the problems that prevent a run."""

    sources: list[DomainReport]
    targets: list[DomainReport]
    shared: list[list[str]]
    problems: list[str]

    @property
    def source(self) -> DomainReport:
        """The first source."""
        return self.sources[0]

    @property
    def target(self) -> DomainReport:
        """The first target."""
        return self.targets[0]

    @property
    def domains(self) -> dict[str, DomainReport]:
        """All domains by their roles: source and target, numbered where there are several."""
        roles = {"source": self.sources, "target": self.targets}
        return {
            role if len(reports) == 1 else f"{role} {number}": report
            for role, reports in roles.items()
            for number, report in enumerate(reports, start=1)
        }

    @property
    def ok(self) -> bool:
        """Whether training could begin."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Returns everything, for JSON; `source` and `target` are the first of each."""
        first = {"source": asdict(self.source), "target": asdict(self.target)}
        return {"ok": self.ok, **first, **asdict(self)}


def check(
    source: Domain | Sequence[Domain],
    target: Domain | Sequence[Domain],
    *,
    skip_bad: bool = False,
    quiet: bool = False,
) -> CheckReport:
    """Read every image of all domains and report on them; nothing is written.

    Problems are what would prevent a run: a source without classes, target classes that no source
    has, bad files (unless `skip_bad`). Duplicates do not prevent a run.
    """
    sources, targets = (
        [side] if isinstance(side, Domain) else [*side] for side in (source, target)
    )
    problems = []
    try:
        sources = [*share_classes([as_source(domain) for domain in sources])]
        for domain in targets:
            scoring_labels(as_source(sources[0]), domain)
    except DialError as error:
        problems.append(str(error))
    surveys = [_survey(domain, quiet=quiet) for domain in (*sources, *targets)]
    reports = [report for report, _ in surveys]
    bad = {name: reason for report in reports for name, reason in report.bad.items()}
    if bad and not skip_bad:
        total = sum(report.images for report in reports)
        problems.append(str(bad_files_error(bad, total=total)))
    return CheckReport(
        sources=reports[: len(sources)],
        targets=reports[len(sources) :],
        shared=_shared([names for _, names in surveys]),
        problems=problems,
    )


def _shared(domains: Sequence[dict[bytes, list[str]]]) -> list[list[str]]:
    """Returns the names of images that more than one domain has, by domain and content."""
    groups: dict[bytes, list[list[str]]] = defaultdict(list)
    for names in domains:
        for digest, group in names.items():
            groups[digest].append(group)
    return [[*chain(*parts)] for parts in groups.values() if len(parts) > 1]


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
