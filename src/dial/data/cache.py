"""Decode once: a domain's resized images in a memory-mapped file that later runs open."""

import errno
import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dial.data.cache_entries import (
    INDEX,
    PARTIAL,
    PIXELS,
    describe,
    make_room,
    map_pixels,
    remove_leftovers,
    touch,
)
from dial.data.cache_locks import hold, release_with
from dial.data.decode import BadImage, Bytes, read_image, strict_pillow
from dial.data.domain import Images, StoredImages
from dial.errors import DialError
from dial.files import expand_home, lock, printable
from dial.files.records import require_arrays

_VERSION = b"dial-1"
_OTHER_FOLDER = (
    "name another folder with --cache-dir (cache_dir=), or pass --no-cache (use_cache=False) to "
    "decode images each time they are used"
)


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
    """Returns the folder `dial` in the user's cache folder, by the XDG rules.

    Raises:
        DialError: this user has no home folder.
    """
    place = os.environ.get("XDG_CACHE_HOME")
    if place:
        return Path(place) / "dial"
    home = expand_home("~")
    if not home.is_absolute():
        raise DialError(
            wanted="a home folder for the cache of decoded images",
            got="a user without one",
            fix=_OTHER_FOLDER,
        )
    return home / ".cache" / "dial"


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
    cache_limit: int | None = None,
    domain: str = "",
    title: str = "decoding once",
    quiet: bool = False,
) -> Entry:
    """Returns the cache entry of these files as they are now; builds it if there is none.

    An entry is a folder that appears under its final name only when complete, by one rename. If
    two processes build the same entry, the first to finish wins and both can use it. No entry is
    removed by others, such as `dial cache`, as long as its pixels are referred to.

    Args:
        images: the files.
        resize: the side of the decoded images.
        channels: 3, or 1 for grey.
        cache_dir: the cache folder; by default one in the user's cache.
        cache_limit: bytes; entries that were used least lately are removed to keep it.
        domain: the name of the images' domain, for a list of the entries.
        title: of the bar of progress.
        quiet: show no progress.
    """
    folder = (cache_dir or default_cache_dir()) / _key(images, resize=resize, channels=channels)
    shape = len(images), resize, resize, channels
    entry = _open(folder, shape)
    if entry and not _repaired(images, entry, resize=resize):
        touch(folder)
        if cache_limit is not None:
            make_room(folder.parent, cache_limit)
        return entry
    if cache_limit is not None:
        make_room(folder.parent, cache_limit, wanted=math.prod(shape), replaced=folder)
    read = partial(survey, images, resize=resize, channels=channels, title=title, quiet=quiet)
    about = {"domain": domain, "place": _place(images)}
    try:
        return _build(folder, shape, read, about)
    except OSError as error:
        raise DialError(
            wanted=f"a cache folder with room for {math.prod(shape) / 1e6:.1f} MB of images",
            got=f"{error.strerror or error} in {printable(folder.parent)}",
            fix=_OTHER_FOLDER,
        ) from error


def _key(images: StoredImages, *, resize: int, channels: int) -> str:
    """Returns a hash of names, sizes, times and settings; a change of any causes a rebuild."""
    digest = hashlib.blake2b(_VERSION, digest_size=16)
    digest.update(f"{resize} {channels}".encode())
    for stamp in images.stamps():
        digest.update(stamp)
    return digest.hexdigest()


def _open(folder: Path, shape: tuple[int, ...]) -> Entry | None:
    """Returns an entry of this shape from disk and locks it; None if it is missing or damaged."""
    try:
        pixels = _map(folder)
        with open(folder / INDEX, "rb") as file, np.load(file) as index:
            arrays = {name: index[name] for name in ("digests", "sizes", "bad_rows")}
            reasons = index["bad_reasons"]
    except Exception:  # noqa: BLE001 - numpy and zipfile raise whatever they trip over
        return None
    return _entry(pixels, reasons, **arrays) if shape == pixels.shape else None


def _entry(
    pixels: Bytes,
    reasons: npt.NDArray[np.str_],
    *,
    digests: npt.NDArray[Any],
    sizes: npt.NDArray[Any],
    bad_rows: npt.NDArray[Any],
) -> Entry | None:
    """Returns an entry of arrays that fit each other; None if they do not."""
    arrays = {"digests": digests, "sizes": sizes, "bad_rows": bad_rows}
    shapes = {"digests": "ND int", "sizes": "NS int", "bad_rows": "B N"}
    try:
        require_arrays(arrays, shapes, {"N": len(pixels), "D": 16, "S": 2, "B": len(reasons)})
    except (TypeError, ValueError):
        return None
    if digests.dtype != np.uint8 or sizes.dtype != np.int32 or reasons.dtype.kind != "U":
        return None
    return Entry(
        pixels, digests, sizes, dict(zip(bad_rows.tolist(), reasons.tolist(), strict=True))
    )


def _map(folder: Path) -> Bytes:
    """Returns an entry's pixels, which nobody removes as long as there is a reference to them."""
    held = hold(folder / PIXELS)
    if held is None:
        raise FileNotFoundError
    try:
        pixels = map_pixels(folder)
    except BaseException:
        os.close(held)
        raise
    release_with(pixels, held)
    return pixels


def _repaired(images: StoredImages, entry: Entry, *, resize: int) -> bool:
    """Whether a bad file can be read by now; new permissions change neither size nor time."""
    with strict_pillow():
        retries = (read_image(images[row], resize=resize) for row in entry.bad)
        return any(not isinstance(image, BadImage) for image in retries)


def _place(images: StoredImages) -> str:
    """Returns the folder that holds the images, as far as the first and the last tell."""
    ends = [str(end) for end in images.identity[1:]]
    with suppress(ValueError):  # on two drives
        return printable(os.path.commonpath([os.path.dirname(end) for end in ends]))
    return ""


def _build(
    folder: Path, shape: tuple[int, ...], read: Callable[..., Entry], about: dict[str, str]
) -> Entry:
    root = folder.parent
    root.mkdir(parents=True, exist_ok=True)
    remove_leftovers(root)
    if shutil.disk_usage(root).free < math.prod(shape):  # now, not after an hour
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    unfinished = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=root))
    try:
        describe(unfinished, about)
        with open(unfinished / PIXELS, "wb") as out:
            lock(out.fileno())  # until it is closed: nobody takes the build for a killed one
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(out, header)
            entry = read(out=out)
            _flush(out)
        with open(unfinished / INDEX, "wb") as out:
            np.savez(
                out,
                digests=entry.digests,
                sizes=entry.sizes,
                bad_rows=np.array(list(entry.bad), dtype=np.int64),
                bad_reasons=np.array(list(entry.bad.values()), dtype=np.str_),
            )
            _flush(out)
        # Mapped before another process can replace it: a mapping outlives its file's name.
        pixels = _map(unfinished)
        shutil.rmtree(folder, ignore_errors=True)  # damaged or out of date
        with suppress(OSError):  # another process was faster; its entry is as good
            unfinished.rename(folder)
        return replace(entry, pixels=pixels)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _flush(out: BinaryIO) -> None:
    out.flush()
    os.fsync(out.fileno())
