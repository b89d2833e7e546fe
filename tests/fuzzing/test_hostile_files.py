"""Files that would run code, or take memory without end: what reads them does neither."""

import json
import os
import pickle
import struct
from pathlib import Path

import pytest
import torch

from dial import DialError

from .command import refused
from .sound import fit


class Payload:
    """What runs a command as soon as it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.canary}",)


def adapt(weights: Path, out: Path) -> list[object]:
    """The command that starts from weights."""
    given = ["--backbone", "timm:test_vit", "--weights", weights, "--no-cache", "--quiet"]
    return ["adapt", "digits:mnist", "digits:optdigits", "--out", out, *given]


@pytest.mark.parametrize("kind", ["torch", "plain pickle"])
def test_pickles_that_would_run_code_are_refused(kind: str, tmp_path: Path) -> None:
    canary, path = tmp_path / "canary", tmp_path / "weights.pth"
    content = {"state_dict": {"weight": torch.zeros(2), "more": Payload(canary)}}
    if kind == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    with path.open("rb") as file:  # the payload works where code is let run
        if kind == "plain pickle":
            pickle.load(file)
        else:
            torch.load(file, weights_only=False)
    assert canary.exists()
    canary.unlink()
    assert "nothing that has to be executed" in refused(*adapt(path, tmp_path / "run"))
    assert not canary.exists()
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_that_would_run_code_is_refused(home: Path, tmp_path: Path) -> None:
    canary, path = tmp_path / "canary", tmp_path / "last.ckpt"
    stored = torch.load(home / "last.ckpt", weights_only=True)
    torch.save(stored | {"more": Payload(canary)}, path)
    with pytest.raises(DialError, match="wanted a checkpoint of this run"):
        fit(path, resume=True)
    assert not canary.exists()


def safetensors(**tensor: object) -> bytes:
    """A file whose header says this of its only tensor."""
    header = json.dumps({"__metadata__": {"dial": '{"version": 3}'}, "x": tensor}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(64)


CLAIMS = {
    "a tensor of a terabyte": safetensors(
        dtype="F32", shape=[1 << 19, 1 << 19], data_offsets=[0, 1 << 40]
    ),
    "more than there are bytes": safetensors(dtype="F32", shape=[1 << 62, 4], data_offsets=[0, 64]),
    "a header of an exabyte": struct.pack("<Q", 1 << 60) + b"{}",
    "a header of 99 MB": struct.pack("<Q", 99 << 20) + b" " * (99 << 20),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_tensors_that_claim_too_much(claim: str, home: Path, tmp_path: Path) -> None:
    for name in ("result.json", "metrics.jsonl", "config.json"):
        (tmp_path / name).write_bytes((home / "run" / name).read_bytes())
    (tmp_path / "model.safetensors").write_bytes(CLAIMS[claim])
    told = refused("predict", tmp_path, home / "dark", "--quiet")
    assert "a finished model in" in told


@pytest.mark.parametrize(
    "content", [b"[" * 10_000_000, b'{"seed": ' + b"9" * 10_000_000 + b"}", b'{"a":' * 5_000_000]
)
def test_json_without_end(content: bytes, home: Path, tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "config.json"):
        (tmp_path / name).write_bytes((home / "run" / name).read_bytes())
    (tmp_path / "result.json").write_bytes(content)
    assert "a damaged result.json" in refused("report", tmp_path)
