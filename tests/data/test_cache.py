"""The decode-once cache: same pixels, rebuilt on change, atomic, safe for two, clear errors."""

import errno
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dial.data import cache
from dial.data.decode import BadImage, GoodImage, read_image, read_images
from dial.data.domain import ImageFiles
from dial.errors import DialError

from ..conftest import MakeFolder, MakeImage


@pytest.fixture
def paths(make_folder: MakeFolder) -> list[Path]:
    return sorted(make_folder("amazon", {"mug": 3, "pen": 3}).rglob("*.png"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each pass over them has read."""
    counts: list[int] = []

    def counted(files: list[Path], **settings: Any) -> Iterator[GoodImage | BadImage]:
        counts.append(len(files))
        return read_images(files, **settings)

    monkeypatch.setattr("dial.data.domain.read_images", counted)
    return counts


def build(paths: list[Path], folder: Path, resize: int = 12) -> cache.Entry:
    return cache.read_cached(ImageFiles(tuple(paths)), resize=resize, cache_dir=folder, quiet=True)


def test_pixels_are_those_of_decoding(paths: list[Path], tmp_path: Path, reads: list[int]) -> None:
    for _ in range(2):  # as built, as opened
        entry = build(paths, tmp_path / "cache")
        assert isinstance(entry.pixels, np.memmap)
        for row, path in enumerate(paths):
            image = read_image(path, resize=12)
            assert isinstance(image, GoodImage)
            np.testing.assert_array_equal(entry.pixels[row], image.pixels)
            assert entry.digests[row].tobytes() == image.digest
            assert entry.sizes[row].tolist() == [24, 20]
    assert reads == [6]


def test_memory_stays_flat_as_the_data_grow(
    tmp_path: Path, make_image: MakeImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial.data.decode._CHUNK", 8)
    image = make_image(tmp_path / "a.png")
    peaks = []
    for count in (100, 800):  # 1.2 MB and 9.8 MB of pixels
        tracemalloc.start()
        build([image] * count, tmp_path / "cache", resize=64)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 1e6


def test_rebuilt_when_anything_of_the_key_changes(
    paths: list[Path], tmp_path: Path, reads: list[int], make_image: MakeImage
) -> None:
    folder = tmp_path / "cache"
    first = build(paths, folder)
    os.utime(paths[0], ns=(0, 0))
    build(paths, folder)
    make_image(paths[1], seed=99, size=(40, 40))
    changed = build(paths, folder)
    build(paths[:-1], folder)
    build(paths, folder, resize=10)
    build(paths, folder)
    assert reads == [6, 6, 6, 5, 6]
    assert first.pixels is not None
    assert changed.pixels is not None
    assert (first.pixels[1] != changed.pixels[1]).any()


def test_broken_entry_is_rebuilt(paths: list[Path], tmp_path: Path, reads: list[int]) -> None:
    folder = tmp_path / "cache"
    build(paths, folder)
    (entry,) = folder.iterdir()
    for name in ("pixels.npy", "index.npz"):
        (entry / name).write_bytes((entry / name).read_bytes()[:100])
        assert build(paths, folder).pixels is not None
    (entry / "index.npz").unlink()
    build(paths, folder)
    assert reads == [6] * 4


def test_bad_files_are_remembered_until_they_can_be_read(
    paths: list[Path], tmp_path: Path, reads: list[int]
) -> None:
    paths[2].unlink()
    paths[2].symlink_to(tmp_path / "not there yet.png")
    for _ in range(2):
        entry = build(paths, tmp_path / "cache")
        assert list(entry.bad) == [2]
        assert entry.good.tolist() == [0, 1, 3, 4, 5]
    assert reads == [6]


def test_bad_file_that_was_repaired_without_a_new_time_is_read_again(
    paths: list[Path], tmp_path: Path, reads: list[int]
) -> None:
    folder, good, times = tmp_path / "cache", paths[2].read_bytes(), os.stat(paths[2])
    for content in (b"\0" * len(good), good):
        paths[2].write_bytes(content)
        os.utime(paths[2], ns=(times.st_atime_ns, times.st_mtime_ns))
        entry = build(paths, folder)
    assert entry.bad == {}
    assert build(paths, folder).bad == {}
    assert reads == [6, 6]


def test_nothing_half_done_is_ever_visible(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> object:
        raise KeyboardInterrupt("stop")

    monkeypatch.setattr("numpy.savez", interrupted)
    with pytest.raises(KeyboardInterrupt, match="stop"):
        build(paths, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_leftovers_of_killed_builds_are_swept(paths: list[Path], tmp_path: Path) -> None:
    old, new = tmp_path / "cache" / ".partial-old", tmp_path / "cache" / ".partial-new"
    old.mkdir(parents=True)
    new.mkdir()
    os.utime(old, (0, 0))
    build(paths, tmp_path / "cache")
    assert new.exists()
    assert not old.exists()


def test_processes_that_start_at_once_all_get_a_valid_cache(
    paths: list[Path], tmp_path: Path
) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom dial.data.cache import read_cached\n"
        "from dial.data.domain import ImageFiles\n"
        "folder, *files = map(Path, sys.argv[1:])\n"
        "print(read_cached(ImageFiles(files), resize=12, cache_dir=folder).pixels.sum())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "cache"), *map(str, paths)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = {process.communicate()[0] for process in processes}
    pixels = build(paths, tmp_path / "cache").pixels
    assert pixels is not None
    assert found == {f"{pixels.sum()}\n"}
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_folder_that_cannot_be_written(paths: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DialError, match=r"Not a directory in .*file.*--cache-dir.*--no-cache"):
        build(paths, tmp_path / "file" / "cache")


def test_disk_full_from_the_start(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(DialError, match=r"room for 0.0 MB of images, got No space left on device"):
        build(paths, tmp_path / "cache")


def test_disk_full_on_the_way(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DialError, match=r"No space left on device .*--cache-dir"):
        build(paths, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_default_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_cache_dir() == tmp_path / "dial"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.default_cache_dir() == tmp_path / ".cache" / "dial"


def test_survey_keeps_no_pixels(paths: list[Path]) -> None:
    entry = cache.survey(ImageFiles(tuple(paths)), resize=12, title="looking", quiet=True)
    assert entry.pixels is None
    assert len(entry.digests) == 6
