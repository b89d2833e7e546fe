"""Entries of the cache: listed as they are, pruned by age and size, never while they are used."""

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dial
from dial.data import cache
from dial.data.cache_entries import Stored, list_entries, make_room, parse_size, prune
from dial.data.domain import ImageFiles
from dial.errors import DialError

from ..conftest import SETTINGS, MakeFolder, MakeImage, as_user

DAY = 24 * 3600
SIDES = (8, 10, 12)
USE = (
    "import sys\nfrom pathlib import Path\nfrom dial.data.cache import read_cached\n"
    "from dial.data.domain import ImageFiles\n"
    "folder, *files = map(Path, sys.argv[1:])\n"
    "entry = read_cached(ImageFiles(tuple(files)), resize=12, cache_dir=folder, quiet=True)\n"
    "print(entry.pixels.sum(), flush=True)\n"
)


@pytest.fixture
def paths(make_folder: MakeFolder) -> list[Path]:
    return sorted(make_folder("amazon", {"mug": 3, "pen": 3}).rglob("*.png"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def read(paths: list[Path], root: Path, side: int = 12, **more: Any) -> cache.Entry:
    images = ImageFiles(tuple(paths))
    return cache.read_cached(images, resize=side, cache_dir=root, quiet=True, **more)


def fill(paths: list[Path], root: Path) -> dict[int, Path]:
    """Make an entry for each side, last used 40, 20 and 1 days ago. Returns their folders."""
    folders: dict[int, Path] = {}
    for side, days in zip(SIDES, (40, 20, 1), strict=True):
        before = set(root.iterdir()) if root.exists() else set()
        read(paths, root, side, domain=f"amazon {side}")
        (folders[side],) = set(root.iterdir()) - before
        os.utime(folders[side], (0, time.time() - days * DAY))
    return folders


def sides(entries: list[Stored]) -> list[int]:
    return [entry.shape[1] for entry in entries if entry.shape]


def disk_use(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def test_a_list_says_what_entries_are_of(paths: list[Path], root: Path) -> None:
    folders = fill(paths, root)
    entries = list_entries(root)
    assert sides(entries) == [12, 10, 8]
    for entry in entries:
        assert entry.shape is not None
        side = entry.shape[1]
        assert entry.shape == (6, side, side, 3)
        assert entry.folder == folders[side]
        assert entry.size == disk_use(folders[side])
        assert (entry.domain, entry.place) == (f"amazon {side}", str(paths[0].parents[1]))
        assert entry.state == "unused"
    assert [round(entry.days) for entry in entries] == [1, 20, 40]
    assert list_entries(root / "nothing") == []


def test_entries_go_by_their_last_use(paths: list[Path], root: Path) -> None:
    folders = fill(paths, root)
    assert sides(prune(root, days=30, dry_run=True)) == [8]
    assert all(folder.is_dir() for folder in folders.values())
    assert sides(prune(root, days=30)) == [8]
    assert not folders[8].exists()
    read(paths, root, 10)  # 20 days ago is now today
    assert sides(prune(root, days=10)) == []
    assert sides(prune(root, days=0.5)) == [12]
    assert sorted(root.iterdir()) == [folders[10]]


def test_a_limit_keeps_what_was_used_last(paths: list[Path], root: Path) -> None:
    folders = fill(paths, root)
    sizes = {side: disk_use(folder) for side, folder in folders.items()}
    assert prune(root, limit=sum(sizes.values())) == []
    assert sides(prune(root, limit=sizes[10] + sizes[12])) == [8]
    assert sides(prune(root, limit=sizes[12])) == [10]
    assert sides(prune(root, limit=0)) == [12]
    assert list(root.iterdir()) == []


def test_what_a_process_uses_stays(paths: list[Path], root: Path) -> None:
    folders = fill(paths, root)
    wait = USE + "sys.stdin.read()"
    command = [sys.executable, "-c", wait, str(root), *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        assert [entry.state for entry in list_entries(root)] == ["in use", "unused", "unused"]
        assert sorted(sides(prune(root, days=0, limit=0))) == [8, 10]
        assert sorted(root.iterdir()) == [folders[12]]
        process.kill()  # which ends its use, too
    assert sides(prune(root, limit=0)) == [12]


def test_an_entry_is_free_when_its_pixels_are_gone(paths: list[Path], root: Path) -> None:
    for _ in range(2):  # as built, as opened
        entry = read(paths, root)
        assert prune(root, limit=0) == []
        del entry
    assert len(prune(root, limit=0)) == 1


def test_pruning_beside_processes_that_read(paths: list[Path], root: Path) -> None:
    expected = read(paths, root.with_name("other")).pixels
    assert expected is not None
    code = USE.replace("entry =", "for _ in range(40): entry =")
    command = [sys.executable, "-c", code, str(root), *map(str, paths)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    removed = 0
    while any(process.poll() is None for process in processes):
        removed += len(prune(root, limit=0))
    assert {process.communicate()[0] for process in processes} == {f"{expected.sum()}\n"}
    assert all(process.returncode == 0 for process in processes)
    prune(root, limit=0)
    assert removed
    assert list(root.iterdir()) == []


def test_damaged_entries_and_leftovers_go(paths: list[Path], root: Path) -> None:
    folders = fill(paths, root)
    (folders[8] / "pixels.npy").write_bytes(b"")
    (folders[10] / "index.npz").unlink()
    (folders[12] / "about.json").write_text("[")  # it can still be used
    left = {name: root / name for name in (".partial-old", ".partial-new", ".partial-building")}
    for name, folder in left.items():
        folder.mkdir()
        (folder / "pixels.npy").write_bytes(b"0" * 1000)
        if name != ".partial-new":
            os.utime(folder, (0, 0))
    (root / ".removed-half").mkdir()
    with open(left[".partial-building"] / "pixels.npy", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # a build that takes days
        states = {entry.folder: entry.state for entry in list_entries(root)}
        assert states[folders[8]] == states[folders[10]] == "damaged"
        assert states[folders[12]] == "unused"
        assert states[left[".partial-building"]] == "being built"
        assert states[left[".partial-old"]] == "unfinished"
        gone = {entry.folder for entry in prune(root)}
        assert gone == {folders[8], folders[10], left[".partial-old"]}
        kept = [folders[12], left[".partial-new"], left[".partial-building"]]
        assert sorted(root.iterdir()) == sorted(kept)
        read(paths, root, 8)  # sweeps the remains of killed builds, but not this one
        assert left[".partial-building"].exists()


def test_nothing_but_entries_is_touched(paths: list[Path], root: Path) -> None:
    fill(paths, root)
    own = root / "holidays"
    own.mkdir()
    (own / "a.png").touch()
    (root / ("0" * 32)).symlink_to(own)
    (root / ("1" * 32)).touch()
    assert len(prune(root, days=0, limit=0)) == 3
    assert (own / "a.png").exists()
    assert len(list(root.iterdir())) == 3


def test_a_run_keeps_the_limit(paths: list[Path], root: Path) -> None:
    folders = fill(paths, root)
    sizes = {side: disk_use(folder) for side, folder in folders.items()}
    limit = sizes[10] + sizes[12]
    held = read(paths, root, 10, cache_limit=limit)
    assert sides(list_entries(root)) == [10, 12]
    new = read(paths[:4], root, 12, cache_limit=limit)
    assert [entry.shape for entry in list_entries(root)] == [(4, 12, 12, 3), (6, 10, 10, 3)]
    with pytest.raises(DialError, match=r"MB .* beside 0.0 MB that are in use.*--no-cache"):
        read(paths, root, 16, cache_limit=limit)
    assert sorted(sides(list_entries(root))) == [10, 12]
    assert new.pixels is not None
    del held
    make_room(root, sizes[12])
    assert sides(list_entries(root)) == [12]


def test_a_run_with_a_limit_that_it_cannot_keep(folders: tuple[Path, Path], tmp_path: Path) -> None:
    given = SETTINGS | {"cache_dir": str(tmp_path / "cache"), "out": tmp_path / "run"}
    with pytest.raises(DialError, match=r"decoded images.* got a limit of 0.0 MB; .*--cache-limit"):
        dial.adapt(*folders, **given, cache_limit="1kB")
    with pytest.raises(DialError, match=r"a number with a unit such as 10GB.* got 'much'"):
        dial.adapt(*folders, **given, cache_limit="much")
    run = dial.adapt(*folders, **given | {"epochs": 1}, cache_limit="1GB")
    assert run.result["target_images"] == 33


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 PB", "1e3", "ten"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(DialError, match="a number with a unit"):
        parse_size(text)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_cache_that_can_only_be_read(make_image: MakeImage) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not in tmp_path, which others cannot enter
        paths = [make_image(Path(folder, f"{seed}.png"), seed=seed) for seed in range(3)]
        root = Path(folder, "cache")
        pixels = read(paths, root).pixels
        assert pixels is not None
        (entry,) = root.iterdir()
        total = pixels.sum()
        del pixels
        read(paths, root, cache_limit=10**9)  # imports what others cannot read
        for each in (entry, root, Path(folder)):
            each.chmod(0o555)
        try:
            used = as_user(lambda: np.sum(read(paths, root, cache_limit=1).pixels))
            assert used == str(total)
            refused = as_user(lambda: prune(root, limit=0))
            assert "DialError: wanted a cache folder that can be changed" in refused
            assert "Permission denied; fix: change its permissions" in refused
            assert [each.state for each in list_entries(root)] == ["unused"]
            other = as_user(lambda: read(paths, root, 8))
            assert "Permission denied" in other
            assert "--cache-dir" in other
        finally:
            for each in (Path(folder), root, entry):
                each.chmod(0o755)


def test_the_command(paths: list[Path], root: Path) -> None:
    def run(*words: object) -> str:
        code = "import sys; from dial.cli import main; main()"
        command = [sys.executable, "-c", code, "cache", "--cache-dir", str(root), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert run() == f"{root}: 0 entries, 0.0 MB\n"
    fill(paths, root)
    listed = run().splitlines()
    assert listed[0].split() == [
        "domain",
        "place",
        "images",
        "pixels",
        "size",
        "last",
        "use",
        "state",
    ]
    assert "20 days ago" in " ".join(listed)
    assert listed[-1].startswith(f"{root}: 3 entries, ")
    assert run("--limit", 0, "--dry-run").startswith("3 entries would be removed")
    assert run("--prune").startswith("1 entries removed")
    found = json.loads(run("--prune", "--days", 10, "--json"))
    assert [entry["shape"] for entry in found["entries"]] == [[6, 12, 12, 3]]
    assert [entry["domain"] for entry in found["removed"]] == ["amazon 10"]
    assert np.load(root / found["entries"][0]["key"] / "pixels.npy").shape == (6, 12, 12, 3)
