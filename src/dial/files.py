"""Files of a run that are whole or not there: written beside, flushed, renamed."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from dial.errors import DialError


def write(path: Path, content: Callable[[BinaryIO], object]) -> None:
    """Replace a file by what `content` writes; the old one stays until the new one is whole.

    Raises:
        DialError: the disk is full, or the folder cannot be written to.
    """
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
    """What to say when a file cannot be written; `rest` tells what is left of it."""
    return DialError(
        wanted=f"to write {path}",
        got="a file where its folder should be"
        if isinstance(error, FileExistsError)
        else error.strerror or str(error),
        fix="free some space or name another folder; "
        + (rest or "what was written before is still there"),
    )


def copy(path: Path, to: Path) -> None:
    """Replace a file by a copy of another."""
    with path.open("rb") as content:
        write(to, lambda out: shutil.copyfileobj(content, out))


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file by one of this content."""
    write(path, lambda out: out.write(content))


def write_text(path: Path, text: str) -> None:
    """Replace a text file."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file."""
    write_text(path, json.dumps(value, indent=2) + "\n")
