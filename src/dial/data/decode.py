"""One image file to one array of pixels, whatever its format, colour mode and rotation."""

import hashlib
import io
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile, UnidentifiedImageError

from dial.data.folders import FOREIGN_SUFFIXES

# Only what we mean to read: Pillow's other plug-ins include some that start programs (EPS).
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
# A JPEG is decoded at 1/2, 1/4 or 1/8 when what remains is at least this much larger than wanted.
# At 1.5 the result is within 0.3 grey levels of a full decode, on Office-31's 1000x1000 photos.
_SPARE = 1.5
_LARGEST_16_BIT = 65535
_filters = threading.RLock()


@dataclass(frozen=True, slots=True)
class GoodImage:
    """An image that could be read: its size on the screen, a hash of its file, its pixels."""

    width: int
    height: int
    digest: bytes
    pixels: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BadImage:
    """A file that could not be read as an image, and why."""

    reason: str


class _UnfitError(Exception):
    """A reason, found by ourselves, why a file is not fit to be read."""


@contextmanager
def strict_pillow() -> Iterator[None]:
    """Make Pillow refuse decompression bombs and keep its other warnings to itself.

    Warning filters belong to the whole process, so enter this once around a parallel pass, not
    in each of its threads; two passes at once wait for each other.
    """
    with _filters, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def read_image(path: Path, *, resize: int, channels: int = 3) -> GoodImage | BadImage:
    """Read a file as (resize, resize, channels) uint8; everything that is wrong is a `BadImage`.

    The image is squeezed into the square, as in the paper. Alpha is put on white, 16 bits are
    scaled to 8, EXIF rotation is carried out, an animation gives its first frame.
    """
    try:
        data = _read_file(path)
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            width, height = image.size
            image.draft("RGB", (round(resize * _SPARE), round(resize * _SPARE)))
            image.load()
            orientation = _orientation(image)  # after loading, which turns a TIFF by itself
            pixels = _square(image, orientation, resize=resize, channels=channels)
    except Exception as error:  # noqa: BLE001 - decoders raise all sorts of things on broken files
        return BadImage(_reason(error, path))
    if orientation in _SWAPS_SIDES:
        width, height = height, width
    digest = hashlib.blake2b(data, digest_size=16).digest()
    return GoodImage(width, height, digest, pixels)


def _read_file(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
        raise _UnfitError("not a regular file")
    data = path.read_bytes()
    if not data:
        raise _UnfitError("empty (zero bytes)")
    return data


def _orientation(image: ImageFile.ImageFile) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - spoilt EXIF does not spoil the image
        return 1


def _square(
    image: Image.Image, orientation: int, *, resize: int, channels: int
) -> npt.NDArray[np.uint8]:
    small = _to_rgb(image).resize((resize, resize), Image.Resampling.BILINEAR, reducing_gap=2.0)
    if orientation in _ROTATIONS:
        small = small.transpose(_ROTATIONS[orientation])
    if channels == 1:
        return np.asarray(small.convert("L"))[..., None]
    return np.asarray(small)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        image = Image.fromarray(_to_8_bits(np.asarray(image)))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_8_bits(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Integers as 16 bits, 0..65535; floats as 0..1, 0..255 or 0..65535, whichever holds them."""
    x = values.astype(np.float64)
    low, high = x.min(), x.max()
    if not (low >= 0 and high <= _LARGEST_16_BIT):  # also when they are not numbers
        raise _UnfitError(f"values {low:g}..{high:g} are outside 0..65535")
    if np.issubdtype(values.dtype, np.integer) or high > 255:  # noqa: PLR2004 - 8 bits
        x = x / 257
    elif high <= 1:
        x = x * 255
    return np.rint(x).astype(np.uint8)


def _reason(error: Exception, path: Path) -> str:
    reason = f"broken: {error}" if str(error) else f"broken ({type(error).__name__})"
    match error:
        case _UnfitError():
            reason = str(error)
        case Image.DecompressionBombError() | Image.DecompressionBombWarning():
            reason = "too large (a decompression bomb?)"
        case UnidentifiedImageError() if path.suffix.lower() in FOREIGN_SUFFIXES:
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
