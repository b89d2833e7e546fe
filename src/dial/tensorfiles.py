"""Tensors and their description in one safetensors file: no code, written whole or not at all."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from dial import files
from dial.errors import DialError


def save(path: Path, tensors: dict[str, Tensor], *, about: dict[str, Any]) -> None:
    """Write tensors, on the CPU; `about`, which goes to JSON, stands in the file's metadata."""
    from safetensors.torch import save as to_bytes

    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    data = to_bytes(whole, metadata={"dial": json.dumps(about)})
    files.write(path, lambda out: out.write(data))


def load(
    path: Path, *, wanted: str, version: int | None, fix: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the tensors of a file.

    Args:
        path: of the file.
        wanted: what it holds, for the error.
        version: what `about["version"]` has to be; None takes any.
        fix: what to do where it cannot be read, for the error.

    Raises:
        DialError: no such file, a damaged one, or one of another version.
    """
    from safetensors import SafetensorError, safe_open

    wanted = f"{wanted} in {path}"
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {}).get("dial", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        got = f"{type(error).__name__}: {error}"
        raise DialError(wanted=wanted, got=got, fix=fix) from error
    if version is not None and about.get("version") != version:
        wanted = f"{wanted}, of version {version}"
        raise DialError(wanted=wanted, got=f"version {about.get('version')}", fix=fix)
    return about, tensors
