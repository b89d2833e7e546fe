"""A resumable grid of runs that several processes share: each cell is run by one of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from filelock import FileLock, Timeout

from dial import files
from dial.errors import DialError


class NoLocksError(DialError):
    """The file system has no locks."""


class Cell(Protocol):
    """One run of a grid, in a folder; the lock file lies beside it and is called FOLDER.lock."""

    @property
    def folder(self) -> Path: ...  # noqa: D102


C = TypeVar("C", bound=Cell)


@dataclass(frozen=True)
class Outcome(Generic[C]):
    """What became of a cell in this process; `value` is what `run` returned."""

    cell: C
    status: Literal["finished", "failed", "skipped"]
    reason: str = ""
    value: Any = None


def has_result(cell: Cell) -> bool:
    """Whether the run folder of a cell has a result.json."""
    return (cell.folder / "result.json").exists()


def run_grid(
    cells: Sequence[C],
    run: Callable[[C], Any],
    *,
    wait: bool,
    keep_going: bool,
    finished: Callable[[C], bool] = has_result,
    report: Callable[[Outcome[C]], None] = lambda _: None,
) -> list[Outcome[C]]:
    """Run every unfinished cell, each under its lock, and return their outcomes.

    Any number of processes may share the cells; if one dies, its lock is released and another takes
    the cell over. With `wait`, cells run by others are waited for, which requires locks; otherwise
    they are skipped, and a file system without locks will do. With `keep_going`, a cell that raises
    an Exception counts as failed. `report` gets each outcome after the cell's lock is released.
    """
    outcomes, remaining = list[Outcome[C]](), list(cells)
    while remaining:
        busy = []
        for cell in remaining:
            outcome = Outcome(cell, "skipped", "another process has finished it")
            if not finished(cell):
                path = cell.folder.with_name(f"{cell.folder.name}.lock")
                with held(path, wait=False, required=wait) as ours:
                    if not ours and wait:
                        busy.append(cell)
                        continue
                    if not ours:
                        outcome = Outcome(cell, "skipped", "another process is at it")
                    elif not finished(cell):  # since we looked
                        outcome = _run(cell, run, keep_going=keep_going)
            outcomes.append(outcome)
            report(outcome)
        if len(busy) == len(remaining):
            time.sleep(0.5)  # other processes run all that is left
        remaining = busy
    return outcomes


def _run(cell: C, run: Callable[[C], Any], *, keep_going: bool) -> Outcome[C]:
    try:
        return Outcome(cell, "finished", value=run(cell))
    except Exception as error:
        if not keep_going:
            raise
        line = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        return Outcome(cell, "failed", str(error) if isinstance(error, DialError) else line)


@contextmanager
def held(path: Path, *, wait: bool = True, required: bool = True) -> Iterator[bool]:
    """Hold the lock on a file inside the `with`; gives whether it is ours.

    With `wait` it always is. A file system without locks counts as ours unless `required`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, held(Path(folder) / "lock") as first:
    ...     with held(Path(folder) / "lock", wait=False) as second:
    ...         first, second
    (True, False)
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()  # an error here is not for want of locks
    except OSError as error:
        raise files.unwritable(path, error) from error
    lock, ours = FileLock(path), True
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        ours = False
    except (OSError, NotImplementedError) as error:
        if required:
            wanted = "locks on files, by which several processes share the trials"
            got = getattr(error, "strerror", None) or str(error)
            fix = "give the setting a value in place of auto"
            raise NoLocksError(wanted=wanted, got=got, fix=fix) from error
    try:
        yield ours
    finally:
        lock.release()
