"""Files of a run, each whole or absent: written to a temporary file, flushed, renamed."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dial.errors import DialError

if TYPE_CHECKING:  # torch takes a second to import, and most of this module does without
    from torch import Tensor


def write(path: Path, content: Callable[[BinaryIO], object]) -> None:
    """Replace a file by what `content` writes; the old one stays until the new one is whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        Path(temporary).chmod(0o666 & ~_umask())  # as any other new file; mkstemp's are private
        try:
            with os.fdopen(handle, "wb") as out:
                content(out)
                out.flush()
                os.fsync(out.fileno())
            Path(temporary).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise unwritable(path, error) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def unwritable(path: Path, error: OSError, *, rest: str = "") -> DialError:
    """Returns the error for a file that cannot be written; `rest` says what is left of it."""
    got = error.strerror or str(error)
    if isinstance(error, FileExistsError):
        got = "a file where its folder should be"
    rest = rest or "what was written before is still there"
    fix = f"free some space or name another folder; {rest}"
    return DialError(wanted=f"to write {path}", got=got, fix=fix)


def copy(path: Path, to: Path) -> None:
    """Replace the file `to` by a copy of `path`."""
    with path.open("rb") as content:
        write(to, lambda out: shutil.copyfileobj(content, out))


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file's content."""
    write(path, lambda out: out.write(content))


def write_text(path: Path, text: str) -> None:
    """Replace a text file's content."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file's content."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def save_tensors(path: Path, tensors: "dict[str, Tensor]", *, about: dict[str, Any]) -> None:
    """Write CPU tensors as safetensors, with the JSON of `about` in the file's metadata."""
    from safetensors.torch import save

    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(contiguous, metadata={"dial": json.dumps(about)}))


def load_tensors(
    path: Path, *, wanted: str, version: int | None, fix: str, former: Collection[int] = ()
) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """Read a file that `save_tensors` wrote. Returns `about` and the tensors.

    `wanted` and `fix` are for the error about a file that is missing, damaged, or of another
    `version` in `about` than this or the `former` ones; None accepts any.
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
    if version is not None and about.get("version") not in (version, *former):
        wanted = f"{wanted}, of version {version}"
        raise DialError(wanted=wanted, got=f"version {about.get('version')}", fix=fix)
    return about, tensors


def printable(path: str | os.PathLike[str]) -> str:
    """Returns a path as text that can be printed, even if its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")
