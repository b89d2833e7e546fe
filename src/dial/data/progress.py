"""How far a long pass over files has come: a bar in a terminal, plain lines in a log."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")
_SECONDS_BETWEEN_LINES = 10.0


def track(items: Iterable[T], *, total: int, doing: str, quiet: bool = False) -> Iterator[T]:
    """Hand on `items` and tell on standard error how many of `total` have gone by."""
    console = Console(stderr=True)
    if quiet:
        yield from items
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            yield from bar.track(items, total=total, description=doing)
    else:
        yield from _lines(items, total=total, doing=doing, console=console)


def _lines(items: Iterable[T], *, total: int, doing: str, console: Console) -> Iterator[T]:
    """A line only now and then, so that a quick pass leaves nothing in the log."""
    start = told = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - told >= _SECONDS_BETWEEN_LINES:
            told = now
            rate = done / (now - start)
            line = f"{doing}: {done} of {total} images, {rate:.0f} a second"
            console.print(line, markup=False, highlight=False)
