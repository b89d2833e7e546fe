"""What the commands show: progress as a bar in a terminal and plain lines in a log, and tables."""

import codecs
import io
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from rich import box
from rich import progress as bars
from rich.console import Console
from rich.table import Table
from rich.text import Text

T = TypeVar("T")


def prepare_streams() -> None:
    """Make the standard streams fit for whatever files and classes are called.

    Where one is closed, the next file that is opened would take its number, and all that libraries
    print would end up in that file. ASCII is what an environment has where nobody chose.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # none where it is closed
            if codecs.lookup(stream.encoding).name in ("ascii", "utf-8"):
                stream.reconfigure(encoding="utf-8", errors="surrogateescape")
            else:
                stream.reconfigure(errors="backslashreplace")


def flush_output() -> None:
    """Write what standard output still holds; it is given up if that cannot be done.

    Otherwise the interpreter would try again as it ends, and print a traceback.

    Raises:
        OSError: it cannot be written.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
        raise


_SECONDS_BETWEEN_LINES = 10.0
_LAST_STREAM = 2  # the number of standard error
_WIDE = 120  # columns of a terminal that has room for losses
_NUMBERS = 50  # columns that a bar and the numbers beside it take


def _is_wide(console: Console) -> bool:
    return console.width >= _WIDE


class _Title(bars.ProgressColumn):
    """What a bar is of, as much of it as the numbers leave room for."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def render(self, task: bars.Task) -> Text:
        """Returns the description, cut off at its end."""
        text = Text(task.description)
        text.truncate(max(10, self._console.width - _NUMBERS), overflow="ellipsis")
        return text


class _Display:
    """Lines on standard error; inside `with`, in a terminal, a bar below them."""

    opening = ""
    """The first line."""

    def __init__(self, title: str, *columns: bars.ProgressColumn, quiet: bool, **task: Any) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.bar = bars.Progress(
            _Title(self.console),
            bars.BarColumn(40 if _is_wide(self.console) else 12),
            bars.MofNCompleteColumn(),
            *columns,
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self.task = self.bar.add_task(title, **task)

    def __enter__(self) -> Self:
        if self.opening:
            self.say(self.opening)
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.bar.disable:  # rich before 14 prints an empty line here
            self.bar.stop()

    def say(self, text: str) -> None:
        """Print one line; in a terminal that is too narrow, it goes on at a space."""
        self.console.print(text, markup=False, soft_wrap=not self.console.is_terminal)


class Reporter(_Display):
    """The progress of one training. Without `scores`, no target accuracy is shown.

    `midway` says what those of an epoch are of, if the finished network is another.
    """

    def __init__(self, *, quiet: bool, title: str, scores: bool = True, midway: str = "") -> None:
        columns = [bars.TimeRemainingColumn(), bars.TextColumn("{task.fields[losses]}")]
        super().__init__(title, *columns, quiet=quiet, total=None, losses="")
        self._title = title
        self._scores = scores
        self._midway = f" ({midway})" if midway else ""
        self._warnings: set[str] = set()

    def begin(self, plan: str) -> None:
        """Print what is going to be done."""
        self.say(f"{self._title}: {plan}")

    def resumed(self, progress: Any, total: int) -> None:
        """Print where a run goes on."""
        self.say(f"resumed after step {progress.step} of {total}")

    def step(self, progress: Any, total: int, terms: dict[str, float]) -> None:
        """Show a training step and its losses."""
        speed = self.bar.tasks[0].speed
        words = [f"{speed:.1f} steps/s"] if speed else []
        if _is_wide(self.console):
            words += [f"{name} {value:.3f}" for name, value in terms.items()]
        self.bar.update(self.task, completed=progress.step, total=total, losses="  ".join(words))

    def epoch(self, record: dict[str, Any]) -> None:
        """Print the metrics of an epoch."""
        words = [f"epoch {record['epoch']}", f"step {record['step']}"]
        for name, value in record.items():
            if name.startswith("target_accuracy"):
                words += [self._score(name, value)] if self._scores else []
            elif isinstance(value, float):
                words.append(f"{name} {value:.4g}")
        self.say("  ".join(words))

    def _score(self, name: str, value: float) -> str:
        return f"{name.replace('_', ' ')} {value:.1%}{self._midway}"

    def first(self, accuracy: float | None, *, seconds: float, target: str = "") -> None:
        """Print what there is before any training; `target` names one of several."""
        name = f"{target}: " if target else ""
        score = "" if accuracy is None or not self._scores else f": target accuracy {accuracy:.1%}"
        self.say(f"{name}a first predictor, without training, after {seconds:.0f} s{score}")

    def candidates(self, figures: dict[str, Any], *, target: str = "") -> None:
        """Print how many neighbors agree with each predictor, and which of them was kept."""
        name = f"{target}: " if target else ""
        for candidate in figures["candidates"]:
            text = f"{name}predictor {candidate['name']}: {candidate['score']:.1%} of the nearest"
            text += " neighbors agree"
            if self._scores and candidate["target_accuracy"] is not None:
                text += f", target accuracy {candidate['target_accuracy']:.1%}"
            self.say(text + " (kept)" * (candidate["name"] == figures["predictor"]))
        if figures["absent_classes"]:
            names = ", ".join(figures["absent_classes"])
            self.say(f"{name}the target seems to have no images of: {names}")

    def warn(self, message: str, *, kind: str = "") -> None:
        """Print a warning, unless it, or another one of its kind, was printed before."""
        if (kind or message) not in self._warnings:
            self._warnings.add(kind or message)
            self.say(f"dial: warning: {message}")

    def finished(self, result: dict[str, Any], folder: Path) -> None:
        """Print the warnings and the result of a finished run."""
        text = f"finished in {result['seconds']:.0f} s"
        if self._scores:
            text += f", folder {shlex.quote(str(folder))}"
            accuracy, interval = result["target_accuracy"], result.get("estimated_interval")
            score = f"target accuracy {accuracy:.1%}" if accuracy is not None else ""
            text += f": {score or 'no labels to score with'}"
            if interval is not None:
                low, high = interval
                text += f", estimated without labels: {low:.0%} to {high:.0%}"
            elif accuracy is None and "no_estimate" in result:
                text += f", no estimate ({result['no_estimate']})"
            for warning in result.get("warnings", ()):
                self.warn(warning)
        self.say(text)
        if self._scores and result["target_accuracy"] is None:
            self.say(f"to measure it on 50 images by hand: dial label {shlex.quote(str(folder))}")


class GridProgress(_Display):
    """The progress of a grid of runs, with the time left, estimated from the cells' `costs`.

    `costs` are those of the cells by title; `at_once` is how many run at the same time.
    """

    def __init__(
        self, costs: Mapping[str, float], *, done: int, quiet: bool, at_once: int = 1
    ) -> None:
        self._ahead, self._total = dict(costs), done + len(costs)
        self._at_once = at_once
        self._cost = self._seconds = 0.0  # of the cells that were finished here
        elapsed = bars.TimeElapsedColumn()
        super().__init__("", elapsed, quiet=quiet, total=self._total, completed=done)
        self.opening = f"{done} of {self._total} cells are finished already" if done else ""

    def begin(self, title: str) -> None:
        """A cell begins."""
        if self.bar.disable:
            self.say(f"{self._place()} {title}: begun")
        self.bar.update(self.task, description=title + self._time_left())

    def finished(self, title: str, *, accuracy: float, seconds: float) -> None:
        """A cell is finished."""
        self._cost += self._ahead[title]
        self._seconds += seconds
        self.skipped(title, f"{100 * accuracy:.1f} % in {seconds:.0f} s")

    def failed(self, title: str, reason: str) -> None:
        """A cell failed; its time does not count for the estimate."""
        self.skipped(title, f"failed: {reason}")

    def skipped(self, title: str, reason: str) -> None:
        """A cell is not run here."""
        place = self._place()
        del self._ahead[title]
        self.say(f"{place} {title}: {reason}{self._time_left()}")
        self.bar.update(self.task, advance=1)

    def _place(self) -> str:
        return f"cell {self._total - len(self._ahead) + 1}/{self._total}"

    def _time_left(self) -> str:
        cost = sum(self._ahead.values())
        if not self._cost or not cost:
            return ""
        at_once = min(self._at_once, len(self._ahead))
        return f"; about {duration(self._seconds / self._cost * cost / at_once)} left"


def duration(seconds: float) -> str:
    """Returns a duration as text.

    >>> duration(42), duration(600), duration(4320)
    ('42 s', '10 min', '1 h 12 min')
    """
    if seconds < 100:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def track(
    items: Iterable[T],
    *,
    total: int,
    title: str,
    quiet: bool = False,
    size: Callable[[T], int] = lambda _: 1,
) -> Iterator[T]:
    """Yield `items` and show how many of `total` images are done; `size` says how many one has.

    In a log there is a line every ten seconds, so a quick pass prints nothing.
    """
    if quiet:
        yield from items
        return
    with _Display(title, bars.TimeRemainingColumn(), quiet=quiet, total=total) as display:
        start = last = time.monotonic()
        done = 0
        for item in items:
            yield item
            done += size(item)
            display.bar.update(display.task, completed=done)
            now = time.monotonic()
            if display.bar.disable and now - last >= _SECONDS_BETWEEN_LINES:
                last, rate = now, done / (now - start)
                display.say(f"{title}: {done} of {total} images, {rate:.0f} a second")


def make_table(console: Console, **settings: Any) -> Table:
    """Returns an empty table: framed in a terminal, plain columns in a pipe."""
    return Table(box=box.ROUNDED if console.is_terminal else None, **settings)


def print_listing(rows: Sequence[Mapping[str, str]], *, console: Console | None = None) -> None:
    """Print rows that all have the same columns."""
    console = console or Console()
    table = make_table(console)
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(value) for value in row.values()))
    console.print(table)
