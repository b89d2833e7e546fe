"""The images of a domain as training reads them: rows of pixels, no names and no labels."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dial.data.blocks import BlockReader, Blocks, blocks_of
from dial.data.decode import BadImage, Bytes, Files, bad_files_error, digest, read_images
from dial.data.domain import StoredImages
from dial.data.members import ImageMembers

Rows = npt.NDArray[np.int64]
Read = Callable[[Rows], Bytes]


class Pixels(ABC):
    """Square images of one size. `order` is a permutation of the rows by content alone.

    Training shuffles `order`, not the rows: rows are sorted by path, and the folders in a path
    may be classes. So no label of a target, not even in a file's name, changes a batch. `digests`
    are hashes of the images' content, `(N, 16)`, row by row. `blocks` say where images lie that
    are better read in the order of their places on disk.
    """

    order: Rows
    digests: Bytes
    blocks: Blocks | None = None

    def __len__(self) -> int:
        return len(self.order)

    @abstractmethod
    def read(self, rows: Rows) -> Bytes:
        """Returns these images, `(n, side, side, channels)`."""

    def stream(self, rows: Rows) -> Bytes:
        """Returns the same, where the next calls are for images of the same blocks."""
        return self.read(rows)


class ArrayPixels(Pixels):
    """Images in an array, perhaps a memory-mapped file; `rows` are those that are good."""

    def __init__(self, array: Bytes, *, digests: Bytes, rows: Rows | None = None) -> None:
        self._array = array
        self._rows = np.arange(len(array), dtype=np.int64) if rows is None else rows
        self.digests = digests[self._rows]
        self.order = content_order(self.digests)

    def read(self, rows: Rows) -> Bytes:
        """Returns these images, `(n, side, side, channels)`; reads no others from disk."""
        return np.ascontiguousarray(self._array[self._rows[rows]])


class FilePixels(Pixels):
    """Images that are decoded from their files each time they are used."""

    def __init__(self, images: StoredImages, *, digests: Bytes, resize: int, channels: int) -> None:
        self._images = images
        self._resize, self._channels = resize, channels
        self.digests, self.order = digests, content_order(digests)

    def read(self, rows: Rows) -> Bytes:
        """Returns these images, `(n, side, side, channels)`."""
        return self._decode(self._images.take(rows), rows)

    def _decode(self, files: Files, rows: Rows) -> Bytes:
        pixels: list[Bytes] = []
        decoded = read_images(files, resize=self._resize, channels=self._channels, quiet=True)
        for row, image in zip(rows.tolist(), decoded, strict=True):
            if isinstance(image, BadImage):  # it was good when the run began
                raise bad_files_error({self._images.names[row]: image.reason}, total=len(rows))
            pixels.append(image.pixels)
        return np.stack(pixels)


class MemberPixels(FilePixels):
    """Images in archives, decoded each time they are used; streams read block by block."""

    def __init__(self, images: ImageMembers, **settings: Any) -> None:
        super().__init__(images, **settings)
        self.blocks = blocks_of(images)
        self._reader = BlockReader(images, self.blocks)

    def stream(self, rows: Rows) -> Bytes:
        """Returns these images, `(n, side, side, channels)`; keeps what is read with them."""
        return self._decode(self._reader.read(rows), rows)


class SomePixels(Pixels):
    """A subset of other pixels, by their rows there."""

    def __init__(self, pixels: Pixels, rows: Rows) -> None:
        self._pixels, self._rows = pixels, rows
        places = np.empty(len(pixels), dtype=np.int64)
        places[pixels.order] = np.arange(len(pixels))
        self.digests, self.order = pixels.digests[rows], np.argsort(places[rows])
        self.blocks = pixels.blocks.take(rows) if pixels.blocks else None

    def read(self, rows: Rows) -> Bytes:
        """Returns these images, `(n, side, side, channels)`."""
        return self._pixels.read(self._rows[rows])

    def stream(self, rows: Rows) -> Bytes:
        """Returns the same, block by block."""
        return self._pixels.stream(self._rows[rows])


class JoinedPixels(Pixels):
    """The images of one set, and then those of another, of the same size.

    In `order` the second set comes first, so that a sample, the first images, has all of it.
    """

    def __init__(self, first: Pixels, second: Pixels) -> None:
        self._first, self._second = first, second
        self.digests = np.concatenate([first.digests, second.digests])
        self.order = np.concatenate([second.order + len(first), first.order])
        if first.blocks and second.blocks:
            self.blocks = first.blocks.join(second.blocks)

    def read(self, rows: Rows) -> Bytes:
        """Returns these images, `(n, side, side, channels)`."""
        return self._gather(rows, self._first.read, self._second.read)

    def stream(self, rows: Rows) -> Bytes:
        """Returns the same, block by block."""
        return self._gather(rows, self._first.stream, self._second.stream)

    def _gather(self, rows: Rows, first: Read, second: Read) -> Bytes:
        start = len(self._first)
        sets = [(first, rows < start, rows), (second, rows >= start, rows - start)]
        parts = [(mine, read(places[mine])) for read, mine, places in sets if mine.any()]
        joined = np.empty((len(rows), *parts[0][1].shape[1:]), np.uint8)
        for mine, part in parts:
            joined[mine] = part
        return joined


def array_digests(array: Bytes) -> Bytes:
    """Returns a hash of every image of an array, `(N, 16)`."""
    hashes = (digest(row.tobytes()) for row in array)
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, 16)


def content_order(digests: Bytes) -> Rows:
    """Returns the permutation that sorts images by their hashes, `(N, 16) -> (N,)`."""
    high, low = np.ascontiguousarray(digests).view(">u8").T
    return np.lexsort((low, high)).astype(np.int64)
