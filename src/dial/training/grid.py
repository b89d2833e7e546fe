"""A resumable grid of runs that several processes share: each cell is run by one of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from filelock import FileLock, Timeout

from dial import files
from dial.errors import DialError
from dial.training.cluster import Cluster


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
    begin: Callable[[C], None] = lambda _: None,
    report: Callable[[Outcome[C]], None] = lambda _: None,
    cluster: Cluster | None = None,
) -> list[Outcome[C]]:
    """Run every unfinished cell, each under its lock, and return their outcomes.

    Any number of processes may share the cells; if one dies, its lock is released and another takes
    the cell over. With `wait`, cells run by others are waited for, which requires locks; otherwise
    they are skipped, and a file system without locks will do. With `keep_going`, a cell that raises
    an Exception counts as failed. `begin` gets each cell before it runs, and `report` each outcome
    after the cell's lock is released. On a `cluster`, each cell is a task, which takes the lock
    there; `begin` gets none of them then.
    """
    if cluster is not None:
        alone = partial(_run_alone, run=run, wait=wait, finished=finished)
        return _run_on(cluster, cells, alone, keep_going=keep_going, report=report)
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
                        begin(cell)
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
        return _failed(cell, error)


def _failed(cell: C, error: Exception) -> Outcome[C]:
    line = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    return Outcome(cell, "failed", str(error) if isinstance(error, DialError) else line)


def _run_on(
    cluster: Cluster,
    cells: Sequence[C],
    alone: Callable[[C], Outcome[C]],
    *,
    keep_going: bool,
    report: Callable[[Outcome[C]], None],
) -> list[Outcome[C]]:
    outcomes = list[Outcome[C]]()

    def each(cell: C, result: Outcome[C] | Exception) -> None:
        if isinstance(result, Exception):
            if not keep_going:
                raise result
            result = _failed(cell, result)
        outcomes.append(result)
        report(result)

    cluster.run(alone, cells, each)
    return outcomes


def _run_alone(
    cell: C, *, run: Callable[[C], Any], wait: bool, finished: Callable[[C], bool]
) -> Outcome[C]:
    """Run one cell of a grid, in a task."""
    (outcome,) = run_grid([cell], run, wait=wait, keep_going=False, finished=finished)
    return outcome


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
