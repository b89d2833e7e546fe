"""Decode once: a domain's resized images in a memory-mapped file that later runs open at once."""

import errno
import hashlib
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from dial.data.decode import BadImage, read_image, strict_pillow
from dial.data.folders import shown
from dial.data.reading import read_all
from dial.errors import DialError

_VERSION = b"dial-1"
_PARTIAL = ".partial-"
_ABANDONED_SECONDS = 24 * 3600
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Entry:
    """What one pass over the files of a domain found: arrays with a row for every file.

    `pixels` (N, side, side, channels) is None where no cache is kept; the rows of `bad` are zero.
    """

    pixels: Bytes | None
    digests: Bytes
    sizes: npt.NDArray[np.int32]
    bad: dict[int, str]

    @property
    def good(self) -> npt.NDArray[np.int64]:
        """The rows of the images that can be read."""
        return np.setdiff1d(np.arange(len(self.digests)), list(self.bad)).astype(np.int64)


def default_cache_dir() -> Path:
    """`dial` in the user's cache folder, as the XDG rules have it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dial"


def survey(
    paths: Sequence[Path], *, resize: int, channels: int = 3, doing: str, quiet: bool = False
) -> Entry:
    """Read every file once and keep only what was found, not the pixels."""
    return _pass(paths, resize=resize, channels=channels, doing=doing, quiet=quiet, out=None)


def cached(
    paths: Sequence[Path],
    *,
    resize: int,
    channels: int = 3,
    cache_dir: Path | None = None,
    doing: str = "decoding once",
    quiet: bool = False,
) -> Entry:
    """The entry for these files as they are now, opened if there is one, else built.

    An entry is a folder that appears under its final name only when complete, by one rename; of
    two processes that build the same one the first to finish keeps its own and both can go on.
    """
    folder = (cache_dir or default_cache_dir()) / _key(paths, resize=resize, channels=channels)
    entry = _open(folder)
    if entry and not _mended(paths, entry, resize=resize):
        return entry
    try:
        return _build(folder, paths, resize=resize, channels=channels, doing=doing, quiet=quiet)
    except OSError as error:
        size = len(paths) * resize * resize * channels
        raise DialError(
            wanted=f"a cache folder with room for {size / 1e6:.1f} MB of images",
            got=f"{error.strerror or error} in {shown(folder.parent)}",
            fix="name another folder with --cache-dir (cache_dir=), or pass --no-cache "
            "(use_cache=False) to decode images each time they are used",
        ) from error


def _key(paths: Sequence[Path], *, resize: int, channels: int) -> str:
    """A hash of names, sizes, times and settings; a change of any asks for a rebuild."""
    digest = hashlib.blake2b(_VERSION, digest_size=16)
    digest.update(f"{resize} {channels}".encode())
    for path in paths:
        try:
            state = os.stat(path)
            times = f"{state.st_size} {state.st_mtime_ns}"
        except OSError as error:
            times = f"error {error.errno}"
        digest.update(b"\0" + os.fsencode(path.absolute()) + b"\0" + times.encode())
    return digest.hexdigest()


def _open(folder: Path) -> Entry | None:
    """An entry from disk; None if there is none or what is there cannot be used."""
    try:
        pixels = np.load(folder / "pixels.npy", mmap_mode="r")
        with open(folder / "index.npz", "rb") as file, np.load(file) as index:
            rows, reasons = index["bad_rows"].tolist(), index["bad_reasons"].tolist()
            bad = dict(zip(rows, reasons, strict=True))
            entry = Entry(pixels, index["digests"], index["sizes"], bad)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None
    return entry if len(pixels) == len(entry.digests) else None


def _mended(paths: Sequence[Path], entry: Entry, *, resize: int) -> bool:
    """Whether a file that was bad can be read by now; new permissions leave size and time alone."""
    with strict_pillow():
        looks = (read_image(paths[row], resize=resize) for row in entry.bad)
        return any(not isinstance(image, BadImage) for image in looks)


def _build(
    folder: Path, paths: Sequence[Path], *, resize: int, channels: int, doing: str, quiet: bool
) -> Entry:
    root = folder.parent
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    shape = (len(paths), resize, resize, channels)
    if shutil.disk_usage(root).free < np.prod(shape):  # told now, not after an hour of decoding
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=root))
    try:
        with open(partial / "pixels.npy", "wb") as out:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(out, header)
            found = _pass(
                paths, resize=resize, channels=channels, doing=doing, quiet=quiet, out=out
            )
            _flush(out)
        with open(partial / "index.npz", "wb") as out:
            np.savez(
                out,
                digests=found.digests,
                sizes=found.sizes,
                bad_rows=np.array(list(found.bad), dtype=np.int64),
                bad_reasons=np.array(list(found.bad.values()), dtype=np.str_),
            )
            _flush(out)
        # Mapped before it can be replaced by another process: a mapping outlives its file's name.
        pixels = np.load(partial / "pixels.npy", mmap_mode="r")
        shutil.rmtree(folder, ignore_errors=True)  # broken or out of date, or we were not here
        with suppress(OSError):  # another process was quicker; its entry is as good as ours
            partial.rename(folder)
        return replace(found, pixels=pixels)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _pass(
    paths: Sequence[Path],
    *,
    resize: int,
    channels: int,
    doing: str,
    quiet: bool,
    out: BinaryIO | None,
) -> Entry:
    digests = np.zeros((len(paths), 16), dtype=np.uint8)
    sizes = np.zeros((len(paths), 2), dtype=np.int32)
    bad: dict[int, str] = {}
    blank = bytes(resize * resize * channels)
    images = read_all(paths, resize=resize, channels=channels, doing=doing, quiet=quiet)
    for row, image in enumerate(images):
        if isinstance(image, BadImage):
            bad[row] = image.reason
        else:
            digests[row] = np.frombuffer(image.digest, dtype=np.uint8)
            sizes[row] = image.width, image.height
        if out:
            out.write(blank if isinstance(image, BadImage) else image.pixels.tobytes())
    return Entry(None, digests, sizes, bad)


def _flush(out: BinaryIO) -> None:
    out.flush()
    os.fsync(out.fileno())


def _sweep(root: Path) -> None:
    """Remove what builds that were killed have left behind."""
    for partial in root.glob(_PARTIAL + "*"):
        with suppress(OSError):
            if time.time() - partial.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(partial)
