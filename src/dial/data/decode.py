"""Image files to arrays of pixels, whatever their format, color mode and rotation."""

import hashlib
import io
import os
import stat
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile, UnidentifiedImageError

from dial.allocator import give_back
from dial.console import track
from dial.errors import DialError

Bytes = npt.NDArray[np.uint8]

SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".webp"),
    *(".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm", ".pnm"),
)
# Images in formats that are not read here: they are reported as bad files, not ignored.
UNSUPPORTED_SUFFIXES = (
    *(".heic", ".heif", ".avif", ".jp2", ".jxl", ".svg", ".psd", ".ico"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2"),
)
# Pillow's other plug-ins include some that start programs (EPS).
_FORMATS = ("JPEG", "PNG", "BMP", "DIB", "WEBP", "TIFF", "GIF", "PPM")
_ORIENTATION = 0x0112
_ROTATIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SWAPS_SIDES = (5, 6, 7, 8)
# A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if the result is at least this much larger than
# `resize`. At 1.5 it is within 0.3 grey levels of a full decode, on Office-31's 1000x1000 photos.
_SPARE = 1.5
_LARGEST_16_BIT = 65535
_CHUNK = 32  # images per thread in one round of `read_images`
_MOST_LISTED = 200
_LARGE = 2**24  # pixels; images above that are decoded one at a time, whatever the threads
_BAND = 2**20  # pixels of a part of an image
_filters, _large = threading.RLock(), threading.Lock()


@dataclass(frozen=True, slots=True)
class GoodImage:
    """A decoded image: its size as displayed, a hash of its file, its resized pixels."""

    width: int
    height: int
    digest: bytes
    pixels: Bytes


@dataclass(frozen=True, slots=True)
class BadImage:
    """A file that could not be decoded, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive that is not compressed: so many bytes of it, from an offset on."""

    archive: Path
    offset: int
    size: int
    suffix: str

    def read(self) -> bytes:
        """Returns the file's content."""
        with open(self.archive, "rb") as stream:
            stream.seek(self.offset)
            data = stream.read(self.size)
        if len(data) < self.size:  # it was there when the archive was looked through
            raise _BadFileError("cut off: its archive has become shorter")
        return data


@dataclass(frozen=True, slots=True)
class Content:
    """A file that was read already; `size` is what it should have."""

    data: bytes
    size: int
    suffix: str

    def read(self) -> bytes:
        """Returns the file's content."""
        if len(self.data) < self.size:
            raise _BadFileError("cut off: its archive has become shorter")
        return self.data


class Files(Protocol):
    """Files by their rows."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Path | Member | Content: ...


class _BadFileError(Exception):
    """A file that Pillow would accept, or wait for, and we do not."""


@contextmanager
def strict_pillow() -> Iterator[None]:
    """Turn Pillow's decompression-bomb warning into an error, and hide its other warnings.

    Warning filters belong to the whole process, so enter this once around a parallel pass, not
    in each of its threads; two passes at once wait for each other.
    """
    with _filters, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def read_image(
    path: Path | Member | Content, *, resize: int, channels: int = 3
) -> GoodImage | BadImage:
    """Decode a file to `(resize, resize, channels)` uint8. Returns a `BadImage` on any failure.

    The image is squeezed into the square, as in the paper. Alpha is composited on white, 16 bits
    are scaled to 8, the EXIF rotation is applied, an animation gives its first frame.
    """
    try:
        data = _read_file(path)
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            width, height = image.size
            image.draft("RGB", (round(resize * _SPARE), round(resize * _SPARE)))
            with _one_if_large(image):
                image.load()
                orientation = _orientation(image)  # after loading, which rotates a TIFF by itself
                pixels = _square(image, orientation, resize=resize, channels=channels)
    except Exception as error:  # noqa: BLE001 - decoders raise all kinds of errors on broken files
        return BadImage(_reason(error, path))
    if orientation in _SWAPS_SIDES:
        width, height = height, width
    return GoodImage(width, height, digest(data), pixels)


def read_picture(path: Path | Member, *, longest: int) -> Image.Image | BadImage:
    """Decode a file to look at: upright, in its proportions, no side above `longest` pixels.

    It has no metadata of the file's.

    Otherwise as `read_image`.
    """
    try:
        with Image.open(io.BytesIO(_read_file(path)), formats=_FORMATS) as image:
            image.draft("RGB", (longest, longest))
            with _one_if_large(image):
                image.load()
                orientation = _orientation(image)
                found = _to_rgb(image)
                picture = found.copy() if found is image else found
                picture.info = {}  # comments, places and profiles stay with the file
                picture.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    except Exception as error:  # noqa: BLE001 - decoders raise all kinds of errors on broken files
        return BadImage(_reason(error, path))
    return picture.transpose(_ROTATIONS[orientation]) if orientation in _ROTATIONS else picture


def read_images(
    paths: Files,
    *,
    resize: int,
    channels: int = 3,
    title: str = "reading images",
    quiet: bool = False,
    threads: int | None = None,
) -> Iterator[GoodImage | BadImage]:
    """Decode files in parallel. Yields the images in the order of `paths`.

    Threads, not processes: Pillow decodes and resizes outside the interpreter's lock, and threads
    start at once and copy no pixels. `benchmarks.data` measures the gain per core.
    """
    threads = threads or cores()

    def decode() -> Iterator[GoodImage | BadImage]:
        read = partial(read_image, resize=resize, channels=channels)
        step = threads * _CHUNK
        with ThreadPoolExecutor(threads) as pool:
            for start in range(0, len(paths), step):
                files = [paths[row] for row in range(start, min(start + step, len(paths)))]
                with strict_pillow():  # left before the caller continues
                    images = list(pool.map(read, files))
                yield from images

    yield from track(decode(), total=len(paths), title=title, quiet=quiet)


def cores() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def digest(data: bytes) -> bytes:
    """Returns a hash of 16 bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


def bad_files_error(bad: Mapping[str, str], *, total: int) -> DialError:
    """Returns one error about all bad files: how many of each kind, what to do, their names."""
    return DialError(
        wanted=f"images that can all be read ({total} files)",
        got=count_bad(bad),
        fix="repair or remove them, or pass --skip-bad (skip_bad=True) to go on without them:\n"
        + list_bad(bad),
    )


def count_bad(bad: Mapping[str, str]) -> str:
    """Returns the number of bad files of each kind; `bad` maps names to reasons.

    >>> count_bad({"a.jpg": "truncated", "b.jpg": "truncated", "c.jpg": "empty"})
    '3 bad: 2 truncated; 1 empty'
    """
    kinds = [f"{count} {reason}" for reason, count in Counter(bad.values()).most_common()]
    return f"{len(bad)} bad: " + "; ".join(kinds)


def list_bad(bad: Mapping[str, str]) -> str:
    """Returns a line for each bad file: its name and what is wrong with it."""
    lines = [f"  {name}: {reason}" for name, reason in list(bad.items())[:_MOST_LISTED]]
    if len(bad) > _MOST_LISTED:
        lines.append(f"  ... and {len(bad) - _MOST_LISTED} more")
    return "\n".join(lines)


def _read_file(path: Path | Member | Content) -> bytes:
    if isinstance(path, Member | Content):
        data = path.read()
    elif stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
        data = path.read_bytes()
    else:
        raise _BadFileError("not a regular file")
    if not data:
        raise _BadFileError("empty (zero bytes)")
    return data


@contextmanager
def _one_if_large(image: Image.Image) -> Iterator[None]:
    """Let a large image wait for others, and have no memory left once it is over."""
    if image.width * image.height <= _LARGE:
        yield
        return
    with _large:
        yield
        image.close()
        give_back()


def _orientation(image: ImageFile.ImageFile) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - broken EXIF does not make the image bad
        return 1


def _square(image: Image.Image, orientation: int, *, resize: int, channels: int) -> Bytes:
    small = _to_rgb(image).resize((resize, resize), Image.Resampling.BILINEAR, reducing_gap=2.0)
    if orientation in _ROTATIONS:
        small = small.transpose(_ROTATIONS[orientation])
    if channels == 1:
        return np.asarray(small.convert("L"))[..., None]
    return np.asarray(small)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        image = _to_8_bits(image)
    if image.has_transparency_data:
        return _on_white(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _bands(image: Image.Image) -> Iterator[tuple[tuple[int, int], Image.Image]]:
    """Yields an image in parts of some rows, each with its place in the image."""
    rows = max(1, _BAND // image.width)
    for top in range(0, image.height, rows):
        yield (0, top), image.crop((0, top, image.width, min(top + rows, image.height)))


def _on_white(image: Image.Image) -> Image.Image:
    out = Image.new("RGB", image.size)
    for place, part in _bands(image):
        white = Image.new("RGBA", part.size, "white")
        out.paste(Image.alpha_composite(white, part.convert("RGBA")).convert("RGB"), place)
    return out


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Integers as 16 bits, 0..65535; floats as 0..1, 0..255 or 0..65535, whichever holds them."""
    arrays = (np.asarray(part) for _, part in _bands(image))
    ends = [(values.min(), values.max()) for values in arrays]
    low, high = np.min(ends), np.max(ends)
    if not (low >= 0 and high <= _LARGEST_16_BIT):  # NaN too
        raise _BadFileError(f"values {low:g}..{high:g} are outside 0..65535")
    is_16_bit = not image.mode.startswith("F") or high > 255  # noqa: PLR2004 - 8 bits
    out = Image.new("L", image.size)
    for place, part in _bands(image):
        x = np.asarray(part).astype(np.float64)
        x = x / 257 if is_16_bit else x * 255 if high <= 1 else x
        out.paste(Image.fromarray(np.rint(x).astype(np.uint8)), place)
    return out


def _reason(error: Exception, path: Path | Member | Content) -> str:
    reason = f"broken: {error}" if str(error) else f"broken ({type(error).__name__})"
    match error:
        case _BadFileError():
            reason = str(error)
        case Image.DecompressionBombError() | Image.DecompressionBombWarning():
            reason = "too large (a decompression bomb?)"
        case UnidentifiedImageError() if path.suffix.lower() in UNSUPPORTED_SUFFIXES:
            reason = f"{path.suffix[1:].upper()}, a format that is not read here"
        case UnidentifiedImageError():
            reason = "not an image"
        case MemoryError():
            reason = "too large for the memory"
        case OSError() if error.errno is not None:
            reason = f"cannot be read: {error.strerror}"
        case OSError() if "truncated" in str(error):
            reason = "truncated"
    return reason
