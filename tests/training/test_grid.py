"""Grids of runs: every cell is run once, by whichever process gets it, and none is lost."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dial.errors import DialError
from dial.training.engine import Interrupted
from dial.training.grid import NoLocksError, Outcome, held, run_grid

PROCESS = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
from dial.training.grid import run_grid

@dataclass(frozen=True)
class Cell:
    folder: Path
    @property
    def title(self):
        return self.folder.name

def run(cell):
    cell.folder.mkdir(exist_ok=True)
    print(cell.title, flush=True)
    time.sleep(SECONDS)
    (cell.folder / "result.json").touch()

cells = [Cell(Path(sys.argv[1]) / f"weight-0.{i}") for i in range(8)]
run_grid(cells, run, wait=sys.argv[2] == "wait", keep_going=False)
"""


@dataclass(frozen=True)
class Named:
    folder: Path

    @property
    def title(self) -> str:
        return self.folder.name


def cells_in(folder: Path) -> list[Named]:
    return [Named(folder / f"weight-0.{i}") for i in range(8)]


def finish(cell: Named) -> str:
    cell.folder.mkdir(exist_ok=True)
    (cell.folder / "result.json").touch()
    return cell.title


def start(folder: Path, *, seconds: float, wait: bool) -> "subprocess.Popen[str]":
    program = PROCESS.replace("SECONDS", str(seconds))
    arguments = [str(folder), "wait" if wait else "leave"]
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
    )


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def statuses(outcomes: list[Outcome[Named]]) -> list[str]:
    return [outcome.status for outcome in outcomes]


@pytest.mark.parametrize("wait", [True, False])
def test_two_processes_run_every_cell_once(wait: bool, tmp_path: Path) -> None:
    processes = [start(tmp_path, seconds=0.2, wait=wait) for _ in range(2)]
    outputs = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted([*outputs[0], *outputs[1]]) == [cell.title for cell in cells_in(tmp_path)]


def test_the_cell_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    process = start(tmp_path, seconds=60, wait=False)
    try:
        assert first_line(process) == "weight-0.0"
        cells, ran = cells_in(tmp_path)[:2], []
        outcomes = run_grid(
            cells, lambda cell: ran.append(finish(cell)), wait=False, keep_going=True
        )
        assert statuses(outcomes) == ["skipped", "finished"]
        assert outcomes[0].reason == "another process is at it"
    finally:
        kill(process)
    outcomes = run_grid(cells, finish, wait=False, keep_going=True)
    assert statuses(outcomes) == ["finished", "skipped"]
    assert outcomes[1].reason == "another process has finished it"
    assert outcomes[0].value == "weight-0.0"


def test_waiting_until_the_others_are_done_or_dead(tmp_path: Path) -> None:
    """A waiting process does the rest, and then what a dead one has left."""
    process, ran = start(tmp_path, seconds=60, wait=True), list[str]()

    def run(cell: Named) -> None:
        ran.append(finish(cell))
        if len(ran) == 7:
            process.kill()

    try:
        assert first_line(process) == "weight-0.0"
        outcomes = run_grid(cells_in(tmp_path), run, wait=True, keep_going=False)
    finally:
        kill(process)
    assert ran == [*(f"weight-0.{i}" for i in range(1, 8)), "weight-0.0"]
    assert statuses(outcomes) == ["finished"] * 8


def test_waiting_for_a_result_of_another_process(tmp_path: Path) -> None:
    process = start(tmp_path, seconds=1, wait=True)
    assert first_line(process) == "weight-0.0"
    outcomes = run_grid(cells_in(tmp_path)[:1], finish, wait=True, keep_going=False)
    assert statuses(outcomes) == ["skipped"]
    kill(process)


def failing(cell: Named) -> str:
    if cell.title == "weight-0.1":
        raise ValueError("no such thing\nand more")
    if cell.title == "weight-0.2":
        raise DialError(wanted="this", got="that", fix="do so")
    return finish(cell)


def test_errors_are_collected_or_propagate(tmp_path: Path) -> None:
    reported: list[Outcome[Named]] = []
    outcomes = run_grid(
        cells_in(tmp_path), failing, wait=False, keep_going=True, report=reported.append
    )
    assert reported == outcomes
    failed = {o.cell.title: o.reason for o in outcomes if o.status == "failed"}
    assert failed == {
        "weight-0.1": "ValueError: no such thing",
        "weight-0.2": str(DialError(wanted="this", got="that", fix="do so")),
    }
    with pytest.raises(ValueError, match="no such thing"):
        run_grid(cells_in(tmp_path), failing, wait=True, keep_going=False)
    with held(tmp_path / "weight-0.1.lock", wait=False) as ours:
        assert ours


@pytest.mark.parametrize("stop", [Interrupted, KeyboardInterrupt])
def test_an_interruption_stops_the_grid_and_releases_the_lock(
    stop: type[BaseException], tmp_path: Path
) -> None:
    def run(_: Named) -> None:
        raise stop

    with pytest.raises(stop, match=r"^$"):
        run_grid(cells_in(tmp_path), run, wait=False, keep_going=True)
    assert statuses(run_grid(cells_in(tmp_path)[:1], finish, wait=False, keep_going=False)) == [
        "finished"
    ]


def test_the_caller_says_when_a_cell_is_over(tmp_path: Path) -> None:
    cells = cells_in(tmp_path)[:2]
    over = {cells[0]}
    outcomes = run_grid(cells, finish, wait=True, keep_going=False, finished=over.__contains__)
    assert statuses(outcomes) == ["skipped", "finished"]
    assert not (tmp_path / "weight-0.0.lock").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DialError, match=r"to write .*weight-0\.0\.lock, got a file where"):
        run_grid(cells_in(tmp_path / "file"), finish, wait=False, keep_going=True)
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(DialError, match="Permission denied"):
            run_grid(cells_in(tmp_path / "closed"), finish, wait=False, keep_going=True)


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)


@pytest.mark.usefixtures("no_locks")
def test_a_file_system_without_locks(tmp_path: Path) -> None:
    cells = cells_in(tmp_path)
    with pytest.raises(NoLocksError, match=r"locks on files.*got No locks available"):
        run_grid(cells, finish, wait=True, keep_going=False)
    assert statuses(run_grid(cells, finish, wait=False, keep_going=True)) == ["finished"] * 8


def test_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    program = (
        "import sys, time; from pathlib import Path; from dial.training.grid import held\n"
        "with held(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert first_line(process) == "held"
        with held(path, wait=False) as ours:
            assert not ours
    finally:
        kill(process)
    with held(path, wait=False) as first, held(path, wait=False) as second:
        assert (first, second) == (True, False)
    with held(path) as again, held(path, wait=False) as second:
        assert (again, second) == (True, False)
