"""The report of `dial check` as text: tables in a terminal, plain columns in a pipe."""

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dial.console import make_table
from dial.data.check import CheckReport, DomainReport
from dial.data.domain import abbreviate

_MOST_GROUPS = 5
_MOST_SIZES = 3
_PAIR = 2


def print_check(report: CheckReport, *, console: Console | None = None) -> None:
    """Print a summary of all domains, the counts per class, and notes."""
    console = console or Console()
    console.print(_summary(report, console))
    if any(domain.classes for domain in report.domains.values()):
        console.print(_classes(report, console))
    for role, domain in report.domains.items():
        for note in domain.notes:
            _line(console, f"note: {role}: {note}", style="yellow")
        _groups(console, domain.mislabelled, f"{role}: the same image in different classes")
        _groups(console, domain.duplicates, f"{role}: the same image more than once")
    several = "both domains" if len(report.domains) == _PAIR else "several domains"
    _groups(console, report.shared, f"the same image in {several}")
    if report.ok:
        _line(console, "ok: training can begin, with `dial adapt` and these folders", style="green")


def _summary(report: CheckReport, console: Console) -> Table:
    table = _table(console, "domains", "", *report.domains)
    domains = [*report.domains.values()]
    shared = "in both" if len(domains) == _PAIR else "in several"
    rows = {
        "name": [domain.name for domain in domains],
        "images": [f"{domain.images:,}" for domain in domains],
        "classes": [str(len(domain.classes)) if domain.classes else "none" for domain in domains],
        "image sizes": [_sizes(domain) for domain in domains],
        "bad files": [f"{len(domain.bad):,}" for domain in domains],
        "duplicates": [_copies(domain.duplicates) for domain in domains],
        shared: [_copies(report.shared), *[""] * (len(domains) - 1)],
    }
    for name, values in rows.items():
        style = "red" if name == "bad files" and any(d.bad for d in domains) else ""
        table.add_row(name, *(Text(value) for value in values), style=style)
    return table


def _classes(report: CheckReport, console: Console) -> Table:
    """Images per class and domain; a domain without labels has dashes."""
    table = _table(console, "images per class", "class")
    columns = [domain.classes for domain in report.domains.values()]
    known = {name for domain in report.sources for name in domain.classes or ()}
    for role in report.domains:
        table.add_column(role, justify="right")
    for name in sorted({name for counts in columns for name in counts or ()}):
        extra = bool(known) and name not in known
        text = f"{name} (not in the source)" if extra else name
        table.add_row(Text(text), *(_count(c, name) for c in columns), style="red" if extra else "")
    table.add_section()
    total = [_count(counts and {"": sum(counts.values())}, "") for counts in columns]
    table.add_row("all", *total, style="bold")
    return table


def _table(console: Console, title: str, *columns: str) -> Table:
    table = make_table(console, title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _count(counts: dict[str, int] | None, name: str) -> str:
    return "-" if counts is None else f"{counts.get(name, 0):,}"


def _sizes(domain: DomainReport) -> str:
    if len(domain.sizes) <= _MOST_SIZES:
        return abbreviate([f"{size} ({count:,})" for size, count in domain.sizes.items()]) or "none"
    by_area = sorted(domain.sizes, key=lambda size: math.prod(map(int, size.split("x"))))
    return f"{by_area[0]} to {by_area[-1]}, {len(by_area):,} different"


def _copies(groups: list[list[str]]) -> str:
    files = sum(len(group) for group in groups)
    return f"{files:,} files in {len(groups):,} groups" if groups else "none"


def _groups(console: Console, groups: list[list[str]], what: str) -> None:
    if groups:
        _line(console, f"note: {what}: {_copies(groups)}", style="yellow")
    for group in groups[:_MOST_GROUPS]:
        _line(console, "  " + " = ".join(group))
    if len(groups) > _MOST_GROUPS:
        _line(console, f"  ... and {len(groups) - _MOST_GROUPS} more; --json lists them all")


def _line(console: Console, text: str, *, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
