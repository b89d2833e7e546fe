"""Files replaced in one go, with the rights of any other file, and files of tensors."""

import json
import os
import stat
import struct
from pathlib import Path

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
