"""What `dial cache` prints: the entries of the cache and those that were removed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from dial.console import print_listing
from dial.data.cache_entries import Stored, show_size
from dial.files import printable

_RECENT = 2  # days that are shown as hours


def print_entries(
    root: Path, entries: Sequence[Stored], removed: Sequence[Stored] | None, *, dry_run: bool
) -> None:
    """Print what is in a cache folder; before that, what was removed, if anything was to be."""
    console = Console(highlight=False)
    if removed is not None:
        action = "would be removed" if dry_run else "removed"
        _say(console, f"{len(removed)} entries {action}, {show_size(_total(removed))}")
        entries = removed if dry_run else entries
    if entries:
        print_listing([_row(entry) for entry in entries], console=console)
    if not dry_run or removed is None:
        _say(console, f"{printable(root)}: {len(entries)} entries, {show_size(_total(entries))}")


def to_dict(
    root: Path, entries: Iterable[Stored], removed: Iterable[Stored] | None
) -> dict[str, Any]:
    """Returns the same for JSON."""
    found = {"folder": str(root), "entries": [entry.to_dict() for entry in entries]}
    return found | ({} if removed is None else {"removed": [each.to_dict() for each in removed]})


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def _total(entries: Iterable[Stored]) -> int:
    return sum(entry.size for entry in entries)


def _row(entry: Stored) -> dict[str, str]:
    images, side = ("-", "-") if entry.shape is None else map(str, entry.shape[:2])
    hours = f"{24 * entry.days:.0f} h ago"
    return {
        "domain": entry.domain or "-",
        "place": entry.place or "-",
        "images": images,
        "pixels": side,
        "size": show_size(entry.size),
        "last use": hours if entry.days < _RECENT else f"{entry.days:.0f} days ago",
        "state": entry.state,
    }
