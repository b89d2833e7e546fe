"""A disk that is full at one place or another: one error, nothing lost, and the same in the end."""

import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dial
from dial import Run
from dial.data import cache
from dial.data.domain import ImageFiles

from ..conftest import SETTINGS, Call, mount, refused

FULL = "No space left on device"
PAGE = 4096
NUMBER_OF_DEV_FULL = 1, 7


def fill(disk: Path) -> Path:
    """Leave no room on a disk. Returns the file that takes it all."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as out:
        while out.write(bytes(PAGE)):
            pass
    return filler


@pytest.fixture(scope="module")
def whole(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nothing happened to."""
    root = tmp_path_factory.mktemp("whole")
    return dial.adapt(*folders, out=root / "run", **options(root))


def options(root: Path) -> dict[str, Any]:
    return SETTINGS | {"epochs": 1, "report": True, "cache_dir": str(root / "cache")}


@pytest.mark.parametrize(
    ("spare", "lacking"),
    [
        (-500_000, "last.ckpt"),
        (6_000, "outputs.safetensors"),
        (500_000, "model.safetensors"),
    ],
)
def test_a_run_goes_on_where_there_is_room_again_and_ends_the_same(
    spare: int, lacking: str, whole: Run, folders: tuple[Path, Path], small_disk: Path
) -> None:
    room = (whole.folder / "last.ckpt").stat().st_size + spare
    mount(small_disk, f"remount,size={room}")
    given = options(whole.folder.parent) | {"out": small_disk / "run"}
    with pytest.raises(dial.DialError, match=FULL) as told:
        dial.adapt(*folders, **given)
    assert lacking in str(told.value)
    assert not (small_disk / "run" / "result.json").exists()
    mount(small_disk, "remount,size=64m")
    run = dial.adapt(*folders, **given, resume=True)
    assert sorted(p.name for p in run.folder.iterdir()) == sorted(
        p.name for p in whole.folder.iterdir()
    )
    model = "model.safetensors"
    assert (run.folder / model).read_bytes() == (whole.folder / model).read_bytes()
    assert {**run.result, "seconds": 0} == {**whole.result, "seconds": 0}


def test_a_run_without_room_for_its_page_is_finished(
    whole: Run, folders: tuple[Path, Path], small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [p for p in whole.folder.iterdir() if p.name != "report.html"]
    room = sum(-(-p.stat().st_size // PAGE) * PAGE for p in names) + 10 * PAGE
    mount(small_disk, f"remount,size={room}")
    given = options(whole.folder.parent) | {"out": small_disk / "run", "quiet": False}
    dial.adapt(*folders, **given)
    assert f"the run has no report (UnwritableError: wanted to write {small_disk}" in (
        capsys.readouterr().err
    )
    mount(small_disk, "remount,size=64m")
    assert dial.report(small_disk / "run").exists()


def test_a_cache_that_fills_up_while_it_is_built(
    folders: tuple[Path, Path], small_disk: Path
) -> None:
    images = ImageFiles(tuple(sorted(folders[0].rglob("*.png"))))
    pages = -(-len(images) * 34 * 34 * 3 // PAGE) + 1
    mount(small_disk, f"remount,size={pages * PAGE}")  # the pixels fit, and nothing more
    for _ in range(2):
        with pytest.raises(dial.DialError, match=rf"{FULL} in .*--cache-dir.*--no-cache"):
            cache.read_cached(images, resize=34, cache_dir=small_disk, quiet=True)
        assert not [*small_disk.iterdir()]
    mount(small_disk, "remount,size=1m")
    entry = cache.read_cached(images, resize=34, cache_dir=small_disk, quiet=True)
    assert entry.good.tolist() == [*range(len(images))]
    del entry  # the disk is not taken away while it is mapped


def test_predictions_are_kept_as_far_as_they_fit(
    call: Call, finished: Run, folders: tuple[Path, Path], small_disk: Path
) -> None:
    out = small_disk / "x.csv"
    filler = fill(small_disk)
    told = call("predict", finished.folder, folders[1], "--out", out, "-q")
    refused(told, FULL, f"the rows so far are in {out}.partial")
    assert not out.exists()
    filler.unlink()
    assert call("predict", finished.folder, folders[1], "--out", out, "-q").code == 0
    assert len(out.read_text().splitlines()) == 34
    assert {p.name for p in small_disk.iterdir()} == {"x.csv"}


@pytest.mark.parametrize("suffix", ["onnx", "pt2", "safetensors"])
def test_an_export_needs_no_room_elsewhere(
    suffix: str, finished: Run, tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(small_disk)
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    assert dial.export(finished, tmp_path / f"x.{suffix}").difference <= 1e-4
    with pytest.raises(dial.DialError, match=FULL):
        dial.export(finished, small_disk / f"x.{suffix}")
    assert {p.name for p in small_disk.iterdir()} == {"filler"}


def test_a_page_elsewhere(call: Call, whole: Run, small_disk: Path) -> None:
    fill(small_disk)
    refused(call("report", whole.folder, "--out", small_disk / "x.html"), FULL)


def test_a_benchmark_goes_on_with_the_cells_that_failed(call: Call, small_disk: Path) -> None:
    words = ["bench", "digits", "--out", small_disk / "b", "--tasks", "mnist-optdigits"]
    words += ["--methods", "source_only", "--seeds", 0, "--steps", 1, "--quiet"]
    told = call(*words)
    assert told.code == 2
    assert FULL in told.err
    assert "Traceback" not in told.err
    mount(small_disk, "remount,size=64m")
    told = call(*words)
    assert told.code == 0, told
    assert (small_disk / "b" / "table.md").exists()


def test_a_pipe_or_a_device_is_written_to_and_stays(
    call: Call, finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    pipe, found = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    for words in (["predict", finished.folder, folders[1]], ["label", finished.folder, folders[1]]):
        reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
        reader.start()
        assert call(*words, "--out", pipe, "--quiet").code == 0
        reader.join(timeout=60)
        assert pipe.is_fifo()
    assert found[0].startswith("path,label,confidence\n")
    assert found[1].lstrip().startswith("<!doctype html>")
    assert {p.name for p in tmp_path.iterdir()} == {"pipe"}


def test_a_device_that_is_always_full(
    call: Call, finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    device = tmp_path / "full"  # one of our own: the system's is not to be tried on
    try:
        os.mknod(device, 0o20666, os.makedev(*NUMBER_OF_DEV_FULL))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("a device cannot be made here")
    told = call("predict", finished.folder, folders[1], "--out", device, "--quiet")
    refused(told, FULL)
    assert device.is_char_device()
    assert {p.name for p in tmp_path.iterdir()} == {"full"}
