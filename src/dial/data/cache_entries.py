"""The cache's entries on disk: what they are of, which are in use, and how they are removed.

An entry is a folder whose name is its key. A process that uses one holds a shared lock on its
pixels, and touches the folder: its time is that of the last use. Whoever removes an entry needs the
lock for itself, and renames the folder before it deletes what is in it.
"""

import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dial.data.cache_locks import alone, is_held
from dial.data.decode import Bytes
from dial.errors import DialError
from dial.files import printable
from dial.files.records import read_json

PIXELS, INDEX, _ABOUT = "pixels.npy", "index.npz", "about.json"
PARTIAL, _REMOVED = ".partial-", ".removed-"
_ABANDONED_SECONDS = 24 * 3600
_DAY = 24 * 3600
_AXES = 4  # of the pixels: image, row, column, channel
_KEY = re.compile("[0-9a-f]{32}")
_UNITS = {"": 1, "B": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*(?:([KMGT]?)(I?)B?)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Stored:
    """An entry of the cache, or what is left of one."""

    folder: Path
    size: int
    """Bytes."""
    used: float
    """When it was last used, in seconds since 1970."""
    shape: tuple[int, ...] | None
    """Of the pixels, `(N, side, side, channels)`; None if it is damaged or unfinished."""
    domain: str
    """Name of the images' domain; empty if it is not known."""
    place: str
    """The folder that holds the images."""
    in_use: bool

    @property
    def is_partial(self) -> bool:
        """Whether it is being built, or its build was killed."""
        return self.folder.name.startswith(PARTIAL)

    @property
    def state(self) -> str:
        """What can be said of it in a word or two."""
        if self.is_partial:
            return "being built" if self.in_use else "unfinished"
        return "damaged" if self.shape is None else "in use" if self.in_use else "unused"

    @property
    def days(self) -> float:
        """Days since it was last used."""
        return max(0.0, time.time() - self.used) / _DAY

    def to_dict(self) -> dict[str, Any]:
        """Returns all that is known of it, for JSON."""
        return {
            "key": self.folder.name,
            "domain": self.domain or None,
            "place": self.place or None,
            "shape": None if self.shape is None else [*self.shape],
            "bytes": self.size,
            "last_use": round(self.used, 3),
            "state": self.state,
        }


def parse_size(text: str | float) -> int:
    """Returns a number of bytes.

    >>> parse_size("10GB"), parse_size("1.5 MiB"), parse_size(0)
    (10000000000, 1572864, 0)
    """
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise DialError(
            wanted="a size of the cache, a number with a unit such as 10GB or 500MB",
            got=repr(text),
            fix="use --cache-limit 10GB (cache_limit=), or dial cache --limit 10GB",
        )
    number, unit, binary = match.groups()
    factor = _UNITS[unit.upper()]
    if binary and factor > 1:
        factor = 1024 ** ("KMGT".index(unit.upper()) + 1)
    return int(float(number) * factor)


def show_size(size: float) -> str:
    """Returns a number of bytes as text.

    >>> show_size(0), show_size(283_115_520), show_size(12_400_000_000)
    ('0.0 MB', '283.1 MB', '12.4 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= _UNITS["G"] else f"{size / 1e6:.1f} MB"


def touch(folder: Path) -> None:
    """Make now the time of an entry's last use."""
    with suppress(OSError):  # a cache that can only be read
        os.utime(folder)


def describe(folder: Path, about: dict[str, str]) -> None:
    """Write what an entry is of, its `domain` and the `place` of its images."""
    (folder / _ABOUT).write_text(json.dumps(about) + "\n")


def list_entries(root: Path) -> list[Stored]:
    """Returns what is in a cache folder, the last used first; other files there are left out."""
    try:
        with os.scandir(root) as content:
            folders = [each for each in content if each.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _closed(root, error, "read") from error
    ours = [Path(f.path) for f in folders if _KEY.fullmatch(f.name) or f.name.startswith(PARTIAL)]
    found = [stored for folder in ours if (stored := _look(folder)) is not None]
    return sorted(found, key=lambda stored: (-stored.used, stored.folder.name))


def prune(
    root: Path,
    *,
    days: float | None = None,
    limit: int | None = None,
    dry_run: bool = False,
) -> list[Stored]:
    """Remove entries that no process uses. Returns them.

    Damaged entries and what killed builds left a day ago always go.

    Args:
        root: the cache folder.
        days: entries that were not used for longer go.
        limit: bytes; the entries that were used last stay, as far as they fit.
        dry_run: remove nothing; the entries that would be.

    Raises:
        DialError: an entry cannot be removed; those before it are.
    """
    stored = list_entries(root)
    going = [each for each in stored if not each.in_use and _is_useless(each, days)]
    if limit is not None:
        rest = [each for each in stored if each not in going]
        going += _excess(rest, limit)
    removed = going if dry_run else [each for each in going if _remove(each.folder)]
    if not dry_run:
        _sweep(root)
    return removed


def make_room(root: Path, limit: int, *, wanted: int = 0, replaced: Path | None = None) -> None:
    """Remove the entries that were used least lately, until `wanted` bytes more keep the limit.

    The entry that is `replaced`, if any, does not count.

    Raises:
        DialError: entries in use leave less room than that; nothing is removed then.
    """
    stored = [each for each in list_entries(root) if each.folder != replaced]
    fixed = sum(each.size for each in stored if each.in_use)
    if wanted and fixed + wanted > limit:
        beside = f" beside {show_size(fixed)} that are in use" if fixed else ""
        raise DialError(
            wanted=f"{show_size(wanted)} for decoded images{beside} in {printable(root)}",
            got=f"a limit of {show_size(limit)}",
            fix="raise --cache-limit (cache_limit=), or pass --no-cache (use_cache=False) to "
            "decode images each time they are used",
        )
    with suppress(DialError):  # a cache that can only be read stays as it is
        for each in _excess(stored, limit - wanted):
            _remove(each.folder)


def remove_leftovers(root: Path) -> None:
    """Remove the remains of killed builds and of interrupted removals, if that can be done."""
    with suppress(DialError):
        for each in list_entries(root):
            if each.is_partial and not each.in_use and _is_useless(each, None):
                _remove(each.folder)
    _sweep(root)


def _look(folder: Path) -> Stored | None:
    """Returns what is known of a folder; None if it has just gone."""
    about: dict[str, str] = {}
    with suppress(OSError, ValueError):
        about = read_json(folder / _ABOUT, dict[str, str])
    try:
        with os.scandir(folder) as files:
            size = sum(file.stat(follow_symlinks=False).st_size for file in files)
        used = folder.stat().st_mtime
    except OSError:
        return None
    return Stored(
        folder,
        size,
        used,
        None if folder.name.startswith(PARTIAL) else _shape(folder),
        about.get("domain", ""),
        about.get("place", ""),
        is_held(folder / PIXELS),
    )


def _shape(folder: Path) -> tuple[int, ...] | None:
    """Returns the shape of an entry's pixels; None if the entry is damaged."""
    try:
        is_whole = (folder / INDEX).stat().st_size > 0
        return map_pixels(folder).shape if is_whole else None
    except (OSError, ValueError):
        return None


def map_pixels(folder: Path) -> Bytes:
    """Returns the pixels of an entry, `(N, side, side, channels)`, as they are on disk.

    Raises:
        OSError: there are none.
        ValueError: they are damaged, or too short for their shape.
    """
    with open(folder / PIXELS, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"another version, {version}")
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
        except (OverflowError, RecursionError, MemoryError, SyntaxError) as error:
            raise ValueError("a damaged header") from error
        size = os.fstat(file.fileno()).st_size - file.tell()
        if kind != np.uint8 or len(shape) != _AXES or min(shape) < 0 or math.prod(shape) != size:
            raise ValueError(f"{size} bytes for the shape {shape}")
        return np.memmap(file, np.uint8, "r", file.tell(), shape)


def _is_useless(stored: Stored, days: float | None) -> bool:
    if stored.is_partial:
        return time.time() - stored.used > _ABANDONED_SECONDS
    return stored.shape is None or (days is not None and stored.days > days)


def _excess(stored: Sequence[Stored], limit: int) -> Iterable[Stored]:
    """Returns the entries that have to go, the longest unused first."""
    excess = sum(each.size for each in stored) - limit
    going = []
    for each in reversed(stored):
        if excess > 0 and not each.in_use and not each.is_partial:
            going.append(each)
            excess -= each.size
    return going


def _remove(folder: Path) -> bool:
    """Remove an entry unless a process uses it. Returns whether it was removed."""
    aside = folder.with_name(f"{_REMOVED}{folder.name}-{os.getpid()}")
    with alone(folder / PIXELS) as is_free:
        if not is_free:
            return False
        try:
            folder.rename(aside)
        except FileNotFoundError:
            return False  # another process was faster
        except PermissionError as error:
            if sys.platform == "win32":  # it is in use
                return False
            raise _closed(folder.parent, error, "changed") from error
        except OSError as error:
            raise _closed(folder.parent, error, "changed") from error
    shutil.rmtree(aside, ignore_errors=True)
    return True


def _sweep(root: Path) -> None:
    for aside in root.glob(_REMOVED + "*"):
        shutil.rmtree(aside, ignore_errors=True)


def _closed(root: Path, error: OSError, purpose: str) -> DialError:
    return DialError(
        wanted=f"a cache folder that can be {purpose}, {printable(root)}",
        got=error.strerror or str(error),
        fix="change its permissions, or name another folder with --cache-dir",
    )
