"""The command `dial` in processes that are killed by SIGKILL: where they change a file, or by time.

Light to import: each process of the fork server does so.
"""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

RENAME = "os.rename"
_CHANGES = {RENAME, "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate", "open"}
_FROM_THE_SHELL = "import sys; from tests.killing import main; main(sys.argv[1:])"
_SLOW_TO_IMPORT = (
    *("dial.cli", "dial.pipeline", "dial.benchmarking.running", "dial.deployment.export"),
    *("dial.reporting.page", "dial.reporting.label", "matplotlib.pyplot", "timm", "mlxtend.data"),
    *("sklearn.cluster", "sklearn.linear_model", "sklearn.manifold"),
)
# Processes are forked from one that has imported these, and that has no threads yet.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload([*_SLOW_TO_IMPORT])


def main(words: list[str]) -> None:
    """Run the command; a search has a small grid."""
    from dial.cli import main
    from dial.selection import tuning

    tuning.GRID = (0.0, 0.1, 1.0)  # type: ignore[assignment]
    sys.argv = ["dial", *words]
    main()


def run(words: list[str], folder: Path) -> list[str]:
    """Run the command in a folder to its end. Returns the changes that it made to files, in order.

    They are named as Python's audit events are, such as `os.rename`.
    """
    changes = folder.with_suffix(".changes")
    assert _run(words, folder, changes=changes) == 0, folder.with_suffix(".log").read_text()
    made: list[str] = json.loads(changes.read_text())
    return made


def kill_before_change(number: int, words: list[str], folder: Path) -> None:
    """Run the command in a folder and kill it right before one of its changes to files."""
    code = _run(words, folder, last=number)
    assert code == -signal.SIGKILL, folder.with_suffix(".log").read_text()


def _run(
    words: list[str], folder: Path, *, last: int | None = None, changes: Path | None = None
) -> int | None:
    process = _server.Process(target=_work, args=(words, folder, last, changes))
    process.start()
    process.join()
    return process.exitcode


def _work(words: list[str], folder: Path, last: int | None, changes: Path | None) -> None:
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.chdir(folder)
    os.environ |= _with_temporary_files_in(folder)
    tempfile.tempdir = None  # so that it is looked up again
    made: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES and (event != "open" or _writes(*arguments)):
            if len(made) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            made.append(event)

    sys.addaudithook(note)
    try:
        main(words)
    finally:
        if changes is not None:
            content = json.dumps(made)
            changes.write_text(content)


def _with_temporary_files_in(folder: Path) -> dict[str, str]:
    """Returns the variable that puts temporary files where they are seen when a command is over."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {"TMPDIR": str(temporary)}


def _writes(path: object, mode: str | None, flags: int) -> bool:
    """Returns whether a file is opened to be written, which is not one of the system's."""
    writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    return bool(writes) and not str(path).startswith(("/dev", "/proc", "/sys"))


def start(words: list[str], folder: Path) -> "subprocess.Popen[str]":
    """Start the command from the shell, so to speak, in a process group of its own."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with folder.with_suffix(".log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-c", _FROM_THE_SHELL, *words],
            cwd=folder,
            stdout=log,
            stderr=log,
            text=True,
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
            | _with_temporary_files_in(folder),
            start_new_session=True,
        )


def kill_after(seconds: float, words: list[str], folder: Path) -> bool:
    """Run the command and kill its process group once it has computed for so many seconds.

    Returns whether it was still at work.
    """
    process = start(words, folder)
    for now in _computed(process):
        if now >= seconds:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            break
    return process.wait() == -signal.SIGKILL


def random_moments(words: list[str], folder: Path, *, count: int) -> list[float]:
    """Run the command to its end. Returns random moments, one in each of so many equal parts of it.

    They are seconds of computing: on a busy machine a clock would tell nothing.
    """
    process = start(words, folder)
    *_, seconds = _computed(process)
    assert process.wait() == 0, folder.with_suffix(".log").read_text()
    chance = random.Random(0)
    return [(part + chance.random()) * seconds / count for part in range(count)]


def _computed(process: "subprocess.Popen[str]") -> Iterator[float]:
    """Yields how many seconds a process has computed, again and again until it ends."""
    ticks = os.sysconf("SC_CLK_TCK")
    while process.poll() is None:
        with suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            yield (int(fields[11]) + int(fields[12])) / ticks
        time.sleep(0.005)
