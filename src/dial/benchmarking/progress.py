"""How far a grid has come: a bar in a terminal, plain lines in a log, with the time left."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class GridProgress:
    """Tells on standard error of each cell, and estimates how long those ahead take."""

    def __init__(self, costs: Sequence[float], *, done: int, quiet: bool) -> None:
        self._costs, self._done, self._quiet = list(costs), done, quiet
        self._total, self._passed = done + len(costs), 0
        self._cost = self._seconds = 0.0  # of the cells that were finished here
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._bar: Progress | None = None

    def __enter__(self) -> "GridProgress":
        if self._done:
            self._say(f"{self._done} of {self._total} cells are finished already")
        if self._console.is_terminal and not self._quiet:
            self._bar = Progress(
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                console=self._console,
                transient=True,
            )
            self._bar.add_task("", total=self._total, completed=self._done)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, title: str) -> None:
        """A cell begins."""
        if self._bar is None:
            self._say(f"{self._place(self._passed + 1)} {title}: begun")
        else:
            self._bar.update(self._bar.task_ids[0], description=title + self._left())

    def finished(self, title: str, *, accuracy: float, seconds: float) -> None:
        """A cell is finished."""
        self._cost += self._costs[self._passed]
        self._seconds += seconds
        self._end(f"{title}: {accuracy:.1%} in {seconds:.0f} s".replace("%", " %"))

    def failed(self, title: str, reason: str) -> None:
        """A cell failed; its time says nothing of the others'."""
        self._end(f"{title}: failed: {reason}")

    def skipped(self, title: str, reason: str) -> None:
        """A cell is not run here."""
        self._end(f"{title}: {reason}")

    def _end(self, text: str) -> None:
        self._passed += 1
        self._say(f"{self._place(self._passed)} {text}{self._left()}")
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0])

    def _place(self, number: int) -> str:
        return f"cell {self._done + number}/{self._total}"

    def _left(self) -> str:
        """The time left, by what the cells so far took for their cost."""
        ahead = sum(self._costs[self._passed :])
        if not self._cost or not ahead:
            return ""
        return f"; about {duration(self._seconds / self._cost * ahead)} left"

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Seconds for reading.

    >>> duration(42), duration(600), duration(4320)
    ('42 s', '10 min', '1 h 12 min')
    """
    if seconds < 100:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
