"""Two commands that are after the same files."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dial import Run

from ..conftest import QUICK, Call, refused

START = [sys.executable, "-c", "from dial.cli import main; main()"]


def wait_for(path: Path, process: subprocess.Popen[str], is_so: Callable[[Path], bool]) -> None:
    until = time.monotonic() + 120
    while not is_so(path):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def start(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*START, *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def test_a_run_belongs_to_one_process(call: Call, pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["adapt", *pair, "--out", out, *QUICK, "--epochs", 1000]
    with start(*words) as first:
        wait_for(out / "config.json", first, Path.exists)
        for more in ([], ["--resume"], ["--lr", "0.5"]):
            refused(call(*words, *more), f"wanted to write {out} alone, got another process")
        wait_for(out / "last.ckpt", first, Path.exists)
        refused(call(*words, "--resume"), "another process")
        refused(call("report", out), "got one that is not finished")
        refused(call("predict", out, pair[1]), "got one that is not finished")
        first.send_signal(signal.SIGINT)
        assert "resume with the same command" in first.communicate(timeout=120)[1]
    with start(*words, "--resume") as second:  # the lock went with its process
        time.sleep(0.1)
        second.send_signal(signal.SIGKILL)
        second.communicate()
    assert "holds a run already" in call(*words).err


def test_what_is_refused_leaves_no_folder(
    call: Call, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    told = call("adapt", *pair, "--out", tmp_path / "run", *QUICK, "--weights", tmp_path / "no.pth")
    refused(told, "no.pth")
    assert not (tmp_path / "run").exists()


def test_two_tables_of_predictions_are_never_mixed(
    call: Call, finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "x.csv"
    with start("predict", finished.folder, *[folders[1]] * 300, "--out", out, "-q") as first:
        wait_for(
            tmp_path / "x.csv.partial",
            first,
            lambda path: path.exists() and path.stat().st_size > 0,
        )
        told = call("predict", finished.folder, folders[0], "--out", out, "-q")
        refused(told, f"wanted to write {out} alone, got another process")
        assert first.communicate(timeout=240)[1] == ""
    lines = out.read_text().splitlines()
    assert len(lines) == 1 + 33 * 300
    assert {line.split(",")[0].split("/")[-3] for line in lines[1:]} == {"dark"}
    assert {p.name for p in tmp_path.iterdir()} == {"x.csv"}
    # What a killed process left is begun anew.
    (tmp_path / "x.csv.partial").write_text("half a row")
    assert call("predict", finished.folder, folders[0], "--out", out, "-q").code == 0
    assert len(out.read_text().splitlines()) == 34
