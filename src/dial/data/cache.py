"""Decode once: a domain's resized images in a memory-mapped file that later runs open."""

import errno
import hashlib
import math
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from dial.data.decode import BadImage, Bytes, read_image, strict_pillow
from dial.data.domain import Images, StoredImages
from dial.errors import DialError
from dial.files import printable

_VERSION = b"dial-1"
_PARTIAL = ".partial-"
_ABANDONED_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Entry:
    """The result of one pass over a domain's images, with a row for every image.

    `pixels` is `(N, side, side, channels)`, or None without a cache; `digests` are hashes of the
    files, `sizes` widths and heights. Rows of `bad` images, which maps them to reasons, are zero.
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
    """Returns the folder `dial` in the user's cache folder, by the XDG rules."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dial"


def survey(
    images: Images,
    *,
    resize: int,
    channels: int = 3,
    title: str,
    quiet: bool = False,
    out: BinaryIO | None = None,
) -> Entry:
    """Read every image once. Returns all but the pixels, which are written to `out`."""
    digests = np.zeros((len(images), 16), dtype=np.uint8)
    sizes = np.zeros((len(images), 2), dtype=np.int32)
    bad: dict[int, str] = {}
    decoded = images.decode(resize=resize, channels=channels, title=title, quiet=quiet)
    for row, image in enumerate(decoded):
        if isinstance(image, BadImage):
            bad[row] = image.reason
            content = bytes(resize * resize * channels)
        else:
            digests[row] = np.frombuffer(image.digest, dtype=np.uint8)
            sizes[row] = image.width, image.height
            content = image.pixels.tobytes()
        if out:
            out.write(content)
    return Entry(None, digests, sizes, bad)


def read_cached(
    images: StoredImages,
    *,
    resize: int,
    channels: int = 3,
    cache_dir: Path | None = None,
    title: str = "decoding once",
    quiet: bool = False,
) -> Entry:
    """Returns the cache entry of these files as they are now; builds it if there is none.

    An entry is a folder that appears under its final name only when complete, by one rename. If
    two processes build the same entry, the first to finish wins and both can use it.
    """
    folder = (cache_dir or default_cache_dir()) / _key(images, resize=resize, channels=channels)
    entry = _open(folder)
    if entry and not _repaired(images, entry, resize=resize):
        return entry
    shape = len(images), resize, resize, channels
    read = partial(survey, images, resize=resize, channels=channels, title=title, quiet=quiet)
    try:
        return _build(folder, shape, read)
    except OSError as error:
        raise DialError(
            wanted=f"a cache folder with room for {math.prod(shape) / 1e6:.1f} MB of images",
            got=f"{error.strerror or error} in {printable(folder.parent)}",
            fix="name another folder with --cache-dir (cache_dir=), or pass --no-cache "
            "(use_cache=False) to decode images each time they are used",
        ) from error


def _key(images: StoredImages, *, resize: int, channels: int) -> str:
    """Returns a hash of names, sizes, times and settings; a change of any causes a rebuild."""
    digest = hashlib.blake2b(_VERSION, digest_size=16)
    digest.update(f"{resize} {channels}".encode())
    for stamp in images.stamps():
        digest.update(stamp)
    return digest.hexdigest()


def _open(folder: Path) -> Entry | None:
    """Returns an entry from disk; None if it is missing or damaged."""
    try:
        pixels = np.load(folder / "pixels.npy", mmap_mode="r")
        with open(folder / "index.npz", "rb") as file, np.load(file) as index:
            rows, reasons = index["bad_rows"].tolist(), index["bad_reasons"].tolist()
            bad = dict(zip(rows, reasons, strict=True))
            entry = Entry(pixels, index["digests"], index["sizes"], bad)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None
    return entry if len(pixels) == len(entry.digests) else None


def _repaired(images: StoredImages, entry: Entry, *, resize: int) -> bool:
    """Whether a bad file can be read by now; new permissions change neither size nor time."""
    with strict_pillow():
        retries = (read_image(images[row], resize=resize) for row in entry.bad)
        return any(not isinstance(image, BadImage) for image in retries)


def _build(folder: Path, shape: tuple[int, ...], read: Callable[..., Entry]) -> Entry:
    root = folder.parent
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    if shutil.disk_usage(root).free < math.prod(shape):  # now, not after an hour
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    unfinished = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=root))
    try:
        with open(unfinished / "pixels.npy", "wb") as out:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(out, header)
            entry = read(out=out)
            _flush(out)
        with open(unfinished / "index.npz", "wb") as out:
            np.savez(
                out,
                digests=entry.digests,
                sizes=entry.sizes,
                bad_rows=np.array(list(entry.bad), dtype=np.int64),
                bad_reasons=np.array(list(entry.bad.values()), dtype=np.str_),
            )
            _flush(out)
        # Mapped before another process can replace it: a mapping outlives its file's name.
        pixels = np.load(unfinished / "pixels.npy", mmap_mode="r")
        shutil.rmtree(folder, ignore_errors=True)  # damaged or out of date
        with suppress(OSError):  # another process was faster; its entry is as good
            unfinished.rename(folder)
        return replace(entry, pixels=pixels)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _flush(out: BinaryIO) -> None:
    out.flush()
    os.fsync(out.fileno())


def _sweep(root: Path) -> None:
    """Remove the remains of killed builds."""
    for unfinished in root.glob(_PARTIAL + "*"):
        with suppress(OSError):
            if time.time() - unfinished.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(unfinished)
