"""Locks between processes: one holder at a time, and none after its death."""

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dial.training.locking import FileLock, NoLocksError

HOLD = """
import sys, time
from pathlib import Path
from dial.training.locking import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    lock = FileLock(path)
    assert not lock.acquire(wait=False)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert lock.acquire(wait=False)
    assert not FileLock(path).acquire(wait=False)
    lock.release()
    with FileLock(path).held():
        assert not lock.acquire(wait=False)
    assert lock.acquire()
    lock.release()


def test_tried_it_does_not_wait(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path).tried() as first, FileLock(path).tried() as second:
        assert (first, second) == (True, False)
    with FileLock(path).tried() as again:
        assert again


@pytest.mark.parametrize("missing", ["on Windows", "on the disk"])
def test_where_there_are_no_locks(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if missing == "on Windows":
        monkeypatch.setitem(sys.modules, "fcntl", None)
    else:
        monkeypatch.setattr("fcntl.flock", refuse)
    lock = FileLock(tmp_path / "lock")
    with lock.tried() as ours:
        assert ours
    with pytest.raises(NoLocksError, match=r"got (a system that has|No locks)"):
        lock.acquire()
