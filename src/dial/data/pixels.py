"""The images of a domain as training sees them: rows of pixels, no names and no labels."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from dial.data.decode import BadImage
from dial.data.reading import bad_files_error, read_all

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]


class Pixels(Protocol):
    """Square images of one size. `order` is a permutation of the rows that only content decides.

    Training shuffles `order`, not the rows: rows are sorted by path, and the folders in a path
    may be classes. So no label of a target, not even through a file's name, moves any batch.
    """

    order: Rows

    def __len__(self) -> int:
        """How many images there are."""

    def read(self, rows: Rows) -> Bytes:
        """Those images, (n, side, side, channels)."""


class ArrayPixels:
    """Images in an array, which may be a memory-mapped file; `rows` are those that are good."""

    def __init__(self, array: Bytes, *, digests: Bytes, rows: Rows | None = None) -> None:
        self._array = array
        self._rows = np.arange(len(array), dtype=np.int64) if rows is None else rows
        self.order = content_order(digests[self._rows])

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, rows: Rows) -> Bytes:
        """Those images, (n, side, side, channels); nothing else is read from the disk."""
        return np.ascontiguousarray(self._array[self._rows[rows]])


class FilePixels:
    """Images decoded from their files each time they are asked for."""

    def __init__(
        self, paths: Sequence[Path], *, digests: Bytes, resize: int, channels: int
    ) -> None:
        self._paths = paths
        self._resize, self._channels = resize, channels
        self.order = content_order(digests)

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, rows: Rows) -> Bytes:
        """Those images, (n, side, side, channels)."""
        paths = [self._paths[row] for row in rows]
        pixels: list[Bytes] = []
        images = read_all(paths, resize=self._resize, channels=self._channels, quiet=True)
        for path, image in zip(paths, images, strict=True):
            if isinstance(image, BadImage):  # it was good when the run began
                raise bad_files_error({path: image.reason}, total=len(paths))
            pixels.append(image.pixels)
        return np.stack(pixels)


class SomePixels:
    """Some of another's images, by their rows there."""

    def __init__(self, pixels: Pixels, rows: Rows) -> None:
        self._pixels, self._rows = pixels, rows
        places = np.empty(len(pixels), dtype=np.int64)
        places[pixels.order] = np.arange(len(pixels))
        self.order = np.argsort(places[rows])

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, rows: Rows) -> Bytes:
        """Those images, (n, side, side, channels)."""
        return self._pixels.read(self._rows[rows])


def resize_array(array: Bytes, *, resize: int, channels: int) -> Bytes:
    """Embedded images (N, h, w, c) brought to (N, resize, resize, channels)."""
    if array.shape[1:] == (resize, resize, channels):
        return array
    mode = "L" if channels == 1 else "RGB"
    size = (resize, resize)
    images = [Image.fromarray(row.squeeze()).convert(mode) for row in array]
    squares = [np.asarray(image.resize(size, Image.Resampling.BILINEAR)) for image in images]
    return np.stack(squares).reshape(len(array), resize, resize, channels)


def array_digests(array: Bytes) -> Bytes:
    """A hash of every image of an array, (N, 16)."""
    hashes = (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in array)
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, 16)


def content_order(digests: Bytes) -> Rows:
    """The permutation that sorts images by the hash of their content, (N, 16) -> (N,)."""
    high, low = np.ascontiguousarray(digests).view(">u8").T
    return np.lexsort((low, high)).astype(np.int64)
