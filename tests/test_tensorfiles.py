"""Tensors with a description in one file."""

import json
import struct
from pathlib import Path

import pytest
import torch

from dial import tensorfiles
from dial.errors import DialError


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    """Read by hand, as the format is published: a length, a JSON head, the tensors' bytes."""
    path = tmp_path / "some.safetensors"
    halves = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16).T  # not contiguous
    tensorfiles.save(path, {"halves": halves}, about={"version": 3, "classes": ["a", "b"]})
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + length])
    assert json.loads(head["__metadata__"]["dial"]) == {"version": 3, "classes": ["a", "b"]}
    start, stop = head["halves"]["data_offsets"]
    raw = struct.unpack("<4H", data[8 + length + start : 8 + length + stop])
    assert [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in raw] == [1, 3, 2, 4]


def test_it_is_read_back_with_its_version_checked(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    tensorfiles.save(path, {"numbers": torch.arange(3)}, about={"version": 1})
    about, tensors = tensorfiles.load(path, wanted="numbers", version=1, fix="count")
    assert about == {"version": 1}
    assert tensors["numbers"].tolist() == [0, 1, 2]
    with pytest.raises(DialError, match=r"numbers in .*, of version 2, got version 1; fix: count"):
        tensorfiles.load(path, wanted="numbers", version=2, fix="count")
    path.write_bytes(path.read_bytes()[:-8])
    for version in (1, None):
        with pytest.raises(DialError, match=r"wanted numbers in .*, got SafetensorError"):
            tensorfiles.load(path, wanted="numbers", version=version, fix="count")
    with pytest.raises(DialError, match="got FileNotFoundError"):
        tensorfiles.load(tmp_path / "none", wanted="numbers", version=1, fix="count")
