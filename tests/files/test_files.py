"""Files replaced in one go, with the rights of any other file, and files of tensors."""

import errno
import json
import os
import stat
import struct
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from dial import DialError, files


def test_the_old_content_stays_until_the_new_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    files.write_text(path, "first")

    def fail(out: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write(path, fail)
    assert path.read_text() == "first"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]


def test_what_killed_processes_left_of_a_file_goes_when_it_is_written_again(tmp_path: Path) -> None:
    left = tmp_path / ".a.txt-0_b1c2d3"
    others = {".b.txt-0_b1c2d3", ".a.txt-mine", ".a.txt-0_b1c2d3.txt", "a.txt-0_b1c2d3"}
    for name in (left.name, *others):
        (tmp_path / name).write_text("half")
    files.write_text(tmp_path / "a.txt", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", *others}
    (tmp_path / ".b.txt-settings").write_text("of a file that is not there, maybe not of ours")
    left.write_text("half")
    files.remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", *others, ".b.txt-settings"}


@pytest.mark.parametrize("has_locks", [True, False])
def test_two_may_write_a_file_at_once(
    has_locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if not has_locks:
        monkeypatch.setattr("fcntl.flock", refuse)
    path = tmp_path / "a.txt"

    def content(out: BinaryIO) -> None:
        files.write_text(path, "by another")
        assert path.read_text() == "by another"
        out.write(b"by this one")

    files.write(path, content)
    assert path.read_text() == "by this one"
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_another_takes_for_a_leftover_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that looks for leftovers may come right before the file is locked."""
    began, lock = list[Path](), files.lock

    def too_late(descriptor: int) -> None:
        if not began:
            began.extend(tmp_path.iterdir())
            began[0].unlink()
        lock(descriptor)

    monkeypatch.setattr(files, "lock", too_late)
    files.write_text(tmp_path / "a.txt", "whole")
    assert began
    assert [path.read_text() for path in tmp_path.iterdir()] == ["whole"]


def test_others_may_read_it_where_the_users_mask_says_so(tmp_path: Path) -> None:
    for mask in (0o022, 0o077):
        former = os.umask(mask)
        try:
            files.write_json(tmp_path / "a.json", {"a": 1})
        finally:
            os.umask(former)
        assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o666 & ~mask


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DialError, match="a file where its folder should be"):
        files.write_text(tmp_path / "file" / "a", "")


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    """Read by hand, as the format is published: a length, a JSON head, the tensors' bytes."""
    path = tmp_path / "some.safetensors"
    halves = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16).T  # not contiguous
    files.save_tensors(path, {"halves": halves}, about={"version": 3, "classes": ["a", "b"]})
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + length])
    assert json.loads(head["__metadata__"]["dial"]) == {"version": 3, "classes": ["a", "b"]}
    start, stop = head["halves"]["data_offsets"]
    raw = struct.unpack("<4H", data[8 + length + start : 8 + length + stop])
    assert [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in raw] == [1, 3, 2, 4]


def test_it_is_read_back_with_its_version_checked(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    files.save_tensors(path, {"numbers": torch.arange(3)}, about={"version": 1})
    about, tensors = files.load_tensors(path, wanted="numbers", version=1, fix="count")
    assert about == {"version": 1}
    assert tensors["numbers"].tolist() == [0, 1, 2]
    with pytest.raises(DialError, match=r"numbers in .*, of version 2, got version 1; fix: count"):
        files.load_tensors(path, wanted="numbers", version=2, fix="count")
    path.write_bytes(path.read_bytes()[:-8])
    for version in (1, None):
        with pytest.raises(DialError, match=r"wanted numbers in .*, got SafetensorError"):
            files.load_tensors(path, wanted="numbers", version=version, fix="count")
    with pytest.raises(DialError, match="got FileNotFoundError"):
        files.load_tensors(tmp_path / "none", wanted="numbers", version=1, fix="count")
