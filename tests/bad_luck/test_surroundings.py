"""What surrounds a command: clocks, a home folder, a locale, the standard streams."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dial
from dial import Run
from dial.data import cache
from dial.data.cache_entries import list_entries, make_room, prune
from dial.data.domain import ImageFiles

from ..conftest import QUICK, SETTINGS, Call, Told, refused

START = [sys.executable, "-c", "from dial.cli import main; main()"]
DAY = 24 * 3600
STRANGER = "54321"  # has no line in the list of users
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


def command(
    *words: object, before: tuple[str, ...] = (), streams: str = "", **changes: str | None
) -> Told:
    """The command in a process of its own, with another environment; None takes a name out."""
    environment: dict[str, str | None] = {**os.environ, "OMP_NUM_THREADS": "1", **changes}
    line = [*before, *START, *map(str, words)]
    if streams:
        line = ["/bin/sh", "-c", f'exec "$@" {streams}', "sh", *line]
    done = subprocess.run(
        line,
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={name: value for name, value in environment.items() if value is not None},
    )
    return Told(done.returncode, done.stdout, done.stderr)


CLOCKS = {
    "at 1970": float,
    "far ahead": lambda tick: 9e9 + tick,
    "backwards": lambda tick: 1e9 - 3600 * tick,
}


@pytest.mark.parametrize("clock", CLOCKS)
def test_no_clock_changes_a_run(
    clock: str,
    finished: Run,
    folders: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = SETTINGS | {"cache_dir": str(tmp_path / "cache"), "align_logits": True}
    left = tmp_path / "cache" / ".partial-left"  # of a killed build; its age is looked at
    left.mkdir(parents=True)
    ticks = iter(range(10**9))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: CLOCKS[clock](next(ticks)))
        run = dial.adapt(*folders, out=tmp_path / "run", **given)
    assert next(ticks) > 0
    assert left.exists() == (clock != "far ahead")
    ours, theirs = ((r.folder / "model.safetensors").read_bytes() for r in (run, finished))
    assert ours == theirs
    assert 0 < run.result["seconds"] < 300


@pytest.mark.slow
@pytest.mark.parametrize("date", ["1970-01-01 00:00:10", "2150-01-01 00:00:00"])
def test_a_process_that_lives_in_another_time(
    date: str, finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    faketime = shutil.which("faketime")
    if faketime is None:
        pytest.skip("needs the program faketime")
    before = (faketime, "-f", f"@{date}")
    told = command("adapt", *folders, "--out", tmp_path / "run", *QUICK, before=before)
    assert (told.code, told.out) == (0, ""), told
    out = tmp_path / "x.onnx"
    assert command("export", tmp_path / "run", out, before=before).code == 0
    assert (tmp_path / "run" / "report.html").exists()


def test_entries_from_the_future_are_used_and_age_from_then_on(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    images = ImageFiles(tuple(sorted(folders[0].rglob("*.png"))))
    root = tmp_path / "cache"

    def read() -> None:
        cache.read_cached(images, resize=8, cache_dir=root, quiet=True)

    read()
    (entry,) = root.iterdir()
    os.utime(entry, (time.time() + 4000 * DAY,) * 2)
    (stored,) = list_entries(root)
    assert stored.days == 0
    assert prune(root, days=30) == []
    read()  # today
    os.utime(entry, (time.time() - 31 * DAY,) * 2)
    assert [each.folder for each in prune(root, days=30)] == [entry]
    read()
    os.utime(entry, (time.time() + 4000 * DAY,) * 2)
    make_room(root, 0)
    assert list_entries(root) == []


@pytest.fixture
def stranger() -> tuple[str, ...]:
    """What makes a command that of a user who is in no list and may read everything."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.getuid() != 0:
        pytest.skip("only the superuser can become somebody else")
    rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    return setpriv, "--reuid", STRANGER, "--regid", STRANGER, "--clear-groups", *rights


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # not in tmp_path, which others cannot enter
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.mark.slow
def test_a_user_without_a_home(
    stranger: tuple[str, ...], folders: tuple[Path, Path], open_folder: Path
) -> None:
    quick = [word for word in QUICK if word != "--no-cache"]
    words = ["adapt", *folders, "--out", open_folder / "run", *quick]
    changes: dict[str, Any] = {"before": stranger, "HOME": None, "XDG_CACHE_HOME": None}
    refused(command(*words, **changes), "a home folder for the cache", "--cache-dir", "--no-cache")
    refused(command("cache", **changes), "a home folder for the cache")
    refused(command("check", "~/a", "~/b", **changes), "'~/a', which does not exist")
    told = command(*words, "--cache-dir", open_folder / "cache", "--resume", **changes)
    assert told.code == 0, told
    assert (open_folder / "run" / "report.html").exists()


@pytest.mark.slow
def test_a_home_that_is_nowhere(
    stranger: tuple[str, ...], folders: tuple[Path, Path], open_folder: Path
) -> None:
    quick = [word for word in QUICK if word != "--no-cache"]
    words = ["adapt", *folders, "--out", open_folder / "run", *quick]
    changes: dict[str, Any] = {"before": stranger, "HOME": "/nowhere/at", "XDG_CACHE_HOME": None}
    refused(
        command(*words, **changes), "Permission denied in /nowhere/at/.cache/dial", "--no-cache"
    )
    words[4] = Path("/run-of-dial")
    refused(command(*words, "--no-cache", **changes), "to write /run-of-dial", "Permission denied")


@pytest.fixture
def foreign(folders: tuple[Path, Path], tmp_path: Path) -> Path:
    """Images under names of another alphabet."""
    place = tmp_path / "caf\u00e9 \u8336"
    shutil.copytree(folders[1], place)
    (place / "circle").rename(place / "cercle \u00e9troit")
    return place


def test_an_environment_that_speaks_only_ascii(
    finished: Run, foreign: Path, tmp_path: Path
) -> None:
    out = tmp_path / "\u00e9.csv"
    told = command("predict", finished.folder, foreign, "--quiet", **ASCII)
    assert (told.code, told.err) == (0, "")
    assert command("predict", finished.folder, foreign, "--out", out, **ASCII).code == 0
    assert out.read_text(encoding="utf-8") == told.out
    assert f"{foreign}/cercle \u00e9troit/0.png," in told.out
    told = command("check", foreign, foreign / "square", "--unlabelled", **ASCII)
    assert told.code == 0, told
    assert "cercle \u00e9troit" in told.out
    told = command("check", foreign / "\u00e0", foreign, **ASCII)
    refused(told, "caf\u00e9 \u8336/\u00e0', which does not exist")


def test_an_environment_of_another_encoding(finished: Run, foreign: Path) -> None:
    told = command("predict", finished.folder, foreign, "-q", PYTHONIOENCODING="utf-8:strict")
    assert told.code == 0
    told = command("check", foreign, foreign / "square", "--unlabelled", PYTHONIOENCODING="koi8-r")
    assert (told.code, "cercle \\xe9troit" in told.out) == (0, True), told


def test_streams_that_are_closed_or_full(finished: Run, pair: tuple[Path, Path]) -> None:
    words = ["predict", finished.folder, pair[1], "--quiet"]
    refused(command(*words, streams=">&-"), "wanted a standard output, got a closed one", "--out")
    refused(command(*words, streams="> /dev/full"), "No space left on device")
    refused(command("list", "methods", "--json", streams="> /dev/full"), "No space left on device")
    assert command("list", "methods", streams=">&-").code == 0
    assert command("check", "nowhere", "nowhere", streams="2>&-").code == 2


@pytest.mark.slow
def test_nothing_that_is_printed_ends_up_in_a_file_of_a_run(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    told = command("adapt", *pair, "--out", tmp_path / "run", *QUICK, streams="<&- >&- 2>&-")
    assert told == (0, "", "")
    assert dial.runs.load(tmp_path / "run").result["target"] == str(pair[1])


def test_a_current_folder_that_was_removed(
    finished: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    leave = f'cd "{tmp_path}/gone" && rmdir ../gone && exec "$@"'
    words = [*START, "predict", str(finished.folder), str(pair[1])]
    done = subprocess.run(
        ["/bin/sh", "-c", leave, "sh", *words], capture_output=True, text=True, check=False
    )
    told = Told(done.returncode, done.stdout, done.stderr)
    refused(told, "wanted to run in a folder, got one that was removed")


def test_a_path_that_no_system_takes(
    call: Call, finished: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    long = "x" * 300
    name = "File name too long"
    refused(call("adapt", *pair, "--out", tmp_path / long, *QUICK), name)
    refused(call("adapt", "--from", long, pair[1], "--out", tmp_path / "run"), name)
    refused(call("check", long, pair[1]), "which does not exist")
    refused(call("export", finished.folder, tmp_path / f"{long}.onnx"), name)
    refused(call("predict", finished.folder, pair[1], "--out", tmp_path / f"{long}.csv"), name)
    lines = tmp_path / "list.txt"
    for line in ("x" * 5000, "a/" * 3000 + " mug"):
        lines.write_text(f"{line}\n{line}\n")
        refused(call("predict", finished.folder, lines, "--out", tmp_path / "x.csv", "-q"), name)
