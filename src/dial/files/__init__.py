"""Files of a run, each whole or absent: written to a temporary file, flushed, renamed.

A process holds the lock of its temporary file. What a killed one leaves is therefore told from what
another one writes, and goes when the same file is written again.
"""

import errno
import glob
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dial.errors import DialError
from dial.files.records import parse_json, require_type

if sys.platform != "win32":  # there, an open file cannot be removed, which is lock enough
    import fcntl
if TYPE_CHECKING:  # torch takes a second to import, and most of this module does without
    from torch import Tensor

_MOST_OF_A_NAME = 48  # characters of a temporary file's name, which has a limit of 255 bytes


class UnwritableError(DialError):
    """A file that cannot be written, for want of space or rights: what is lacking can be given."""


def write(path: Path, content: Callable[[BinaryIO], object]) -> None:
    """Replace a file by what `content` writes; the old one stays until the new one is whole.

    A pipe or a device is never replaced but written to.
    """
    try:
        if is_device(path):
            with path.open("wb") as out:
                content(out)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        handle, temporary = _temporary(path)
        try:
            with os.fdopen(handle, "wb") as out:
                content(out)
                out.flush()
                os.fsync(out.fileno())
                if sys.platform == "win32":  # an open file cannot be renamed there
                    out.close()
                Path(temporary).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise unwritable(path, error) from error


def _temporary(path: Path) -> tuple[int, str]:
    """Returns the descriptor and the name of a new file beside `path`, with its lock held."""
    while True:
        handle, temporary = tempfile.mkstemp(prefix=_prefix(path), dir=path.parent)
        lock(handle)
        if Path(temporary).exists():
            break
        os.close(handle)  # another process took it for a leftover before it was locked
    Path(temporary).chmod(0o666 & ~_umask())  # as any other new file; mkstemp's are private
    return handle, temporary


def _prefix(path: Path) -> str:
    return f".{path.name[:_MOST_OF_A_NAME]}-"


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote this file.

    Of a folder, those of all the files that are in it.
    """
    if path.is_dir():
        for each in path.iterdir():
            if each.is_file():
                remove_leftovers(each)
    any_eight = "[a-z0-9_]" * 8  # as mkstemp ends names
    for leftover in path.parent.glob(glob.escape(_prefix(path)) + any_eight):
        with suppress(OSError), leftover.open("rb+") as file:
            if lock_alone(file.fileno(), without_locks=False):
                leftover.unlink()


def lock(descriptor: int) -> None:
    """Hold the lock of an open file, along with others, until it is closed."""
    if sys.platform != "win32":
        with suppress(OSError):  # a disk without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH)


def lock_alone(descriptor: int, *, without_locks: bool) -> bool:
    """Returns whether the lock of an open file could be had alone and at once.

    `without_locks` is the answer on a disk without locks.
    """
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return without_locks and error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def unwritable(path: Path, error: OSError, *, rest: str = "") -> UnwritableError:
    """Returns the error for a file that cannot be written; `rest` says what is left of it."""
    got = error.strerror or str(error)
    if isinstance(error, FileExistsError):
        got = "a file where its folder should be"
    rest = rest or "what was written before is still there"
    fix = f"free some space or name another folder; {rest}"
    return UnwritableError(wanted=f"to write {printable(path)}", got=got, fix=fix)


def taken(path: Path) -> DialError:
    """Returns the error for what another process is writing."""
    return DialError(
        wanted=f"to write {printable(path)} alone",
        got="another process that writes it",
        fix="wait for it to end, or name another --out",
    )


def is_device(path: Path) -> bool:
    """Whether there is a pipe or a device at a path, such as /dev/stdout."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


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
    path: Path,
    *,
    wanted: str,
    version: int | None,
    fix: str,
    former: Collection[int] = (),
    kind: Any = dict[str, Any],
) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """Read a file that `save_tensors` wrote. Returns `about` and the tensors.

    `wanted` and `fix` are for the error about a file that is missing, damaged, or of another
    `version` in `about` than this or the `former` ones; None accepts any. `about` has to be of
    a `kind`, as `require_type` says.
    """
    from safetensors import SafetensorError, safe_open

    wanted = f"{wanted} in {path}"
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("dial", "{}")
            about: dict[str, Any] = parse_json(text, dict[str, Any])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found = about.get("version")
        if version is not None and found not in (version, *former):
            wanted = f"{wanted}, of version {version}"
            raise DialError(wanted=wanted, got=f"version {found!r:.80}", fix=fix)
        require_type(about, kind, name="its description")
    except DialError:
        raise
    except (OSError, SafetensorError, ValueError, MemoryError) as error:
        got = f"{type(error).__name__}: {error}"
        raise DialError(wanted=wanted, got=got, fix=fix) from error
    return about, tensors


def printable(path: str | os.PathLike[str]) -> str:
    r"""Returns a path as text that can be printed, even if its bytes are not UTF-8.

    Different paths give different texts, for those of folders are the names of classes.

    >>> printable(os.fsdecode(b"caf\xe9"))
    'caf\\xe9'
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Returns a path with `~` replaced, or as it is where there is no home folder."""
    return Path(os.path.expanduser(path))  # the method of a path raises there
