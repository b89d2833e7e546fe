"""Locks between processes: one holder at a time, and none after its death."""

import signal
import subprocess
import sys
from pathlib import Path

from dial.locking import FileLock

HOLD = """
import sys, time
from pathlib import Path
from dial.locking import FileLock
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
