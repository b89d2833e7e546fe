"""Images as small files inside a page, each within its part of the page's weight."""

import base64
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from PIL import Image

from dial.data.decode import BadImage, cores, read_picture, strict_pillow
from dial.data.domain import ImageArray, Images

_PAGE = 12_000_000  # characters of all pictures together
_PICTURE = 12_000, 60_000  # characters of one: at least, at most
_LONGEST = 900  # pixels
_SMALL = 64  # pixels up to which a picture is kept as it is, and enlarged without smoothing
_LADDER = ((900, 82), (900, 70), (760, 66), (640, 60), (512, 55), (400, 50), (300, 45), (200, 40))


@dataclass(frozen=True)
class Picture:
    """A picture as a page holds it."""

    source: str
    """A `data:` address."""
    width: int
    height: int

    @property
    def is_small(self) -> bool:
        """Whether it is to be enlarged without smoothing."""
        return max(self.width, self.height) <= _SMALL


def budget_of(count: int) -> int:
    """Returns the characters that each of `count` pictures may have.

    >>> budget_of(50), budget_of(200), budget_of(400)
    (60000, 60000, 30000)
    """
    least, most = _PICTURE
    return max(least, min(most, _PAGE // max(count, 1)))


def encode(image: Image.Image, budget: int) -> Picture:
    """Returns a picture of at most `budget` characters: smaller and coarser until it fits.

    Small images are kept pixel by pixel.
    """
    if max(image.size) <= _SMALL:
        return Picture(_address(image, "png", optimize=True), *image.size)
    picture = image
    for side, quality in _LADDER:
        picture = image.copy()
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        source = _address(picture, "webp", quality=quality)
        if len(source) <= budget:
            break
    return Picture(source, *picture.size)


def encode_first(
    images: Images, rows: Sequence[int], count: int
) -> tuple[dict[int, Picture], dict[str, str]]:
    """Returns the pictures of the first `count` rows that can be read, by row.

    Beside them come the names and reasons of those before them that cannot.
    """
    found: dict[int, Picture] = {}
    bad: dict[str, str] = {}
    names = images.names
    for row, picture in _encoded(images, rows, count):
        if isinstance(picture, BadImage):
            bad[names[row]] = picture.reason
        else:
            found[row] = picture
        if len(found) == count:
            break
    return found, bad


def _encoded(
    images: Images, rows: Sequence[int], count: int
) -> Iterator[tuple[int, Picture | BadImage]]:
    """Yields rows with their pictures in order, some at a time in parallel."""
    read = partial(_read, images, budget=budget_of(count))
    size = 4 * cores()
    with ThreadPoolExecutor(cores()) as pool:
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            with strict_pillow():
                pictures = list(pool.map(read, part))
            yield from zip(part, pictures, strict=True)


def _read(images: Images, row: int, *, budget: int) -> Picture | BadImage:
    if isinstance(images, ImageArray):
        pixels = images.pixels[row]
        return encode(Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels), budget)
    image = read_picture(images[row], longest=_LONGEST)
    return image if isinstance(image, BadImage) else encode(image, budget)


def _address(image: Image.Image, kind: str, **settings: int) -> str:
    file = io.BytesIO()
    image.save(file, kind, **settings)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
