"""Files of a run that are whole or not there: written beside, flushed, renamed."""

import json
import os
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
    except (OSError, RuntimeError) as error:  # torch's writer raises the second
        raise DialError(
            wanted=f"to write {path}",
            got=getattr(error, "strerror", None) or str(error).splitlines()[0],
            fix="free some space or name another folder; what was written before is still there",
        ) from error


def write_text(path: Path, text: str) -> None:
    """Replace a text file."""
    write(path, lambda out: out.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file."""
    write_text(path, json.dumps(value, indent=2) + "\n")
