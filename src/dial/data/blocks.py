"""Images in archives read block by block, in an order that is random enough to train on.

One image here and one there is the slowest way to read a large archive from a disk or over a
network. So archives are cut into blocks of a few megabytes, which are read as a whole. Each pass
draws a new order of the blocks, and shuffles the images of as many blocks as fit into a buffer
(CorgiPile: Xu et al. 2022, <https://doi.org/10.1145/3514221.3526150>). Archives that fit into it
whole are shuffled whole.
"""

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from dial.data.decode import Content
from dial.data.members import ImageMembers
from dial.data.path_table import Rows

BLOCK = 4_000_000
"""Bytes of an archive that are read at once."""
BUFFER = 256_000_000
"""Bytes of images that are shuffled together."""


class Blocks(NamedTuple):
    """Where images lie: the number of each one's block, and bytes from it to the next, `(N,)`."""

    numbers: Rows
    sizes: Rows

    @property
    def are_many(self) -> bool:
        """Whether the images do not fit into the buffer together."""
        return int(self.sizes.sum()) > BUFFER

    def take(self, rows: Rows) -> "Blocks":
        """Returns where the images of these rows lie."""
        return Blocks(self.numbers[rows], self.sizes[rows])

    def join(self, other: "Blocks") -> "Blocks":
        """Returns where these images lie and then the other ones, which are in other archives."""
        numbers = other.numbers + self.numbers.max(initial=-1) + 1
        sizes = np.concatenate([self.sizes, other.sizes])
        return Blocks(np.concatenate([self.numbers, numbers]), sizes)

    def shuffle(self, random: np.random.Generator) -> Rows:
        """Returns all rows in a random order, in which a buffer's images follow each other."""
        totals = np.bincount(self.numbers, weights=self.sizes)
        order = random.permutation(len(totals))
        buffers = np.empty(len(totals), dtype=np.int64)
        buffers[order] = totals[order].cumsum() // BUFFER
        return np.lexsort((random.random(len(self.numbers)), buffers[self.numbers]))


def blocks_of(images: ImageMembers) -> Blocks:
    """Returns the blocks of archives' images."""
    archives, offsets, sizes = images.places.T
    pieces = np.stack([archives, offsets // BLOCK])
    numbers = np.unique(pieces, axis=1, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((offsets, archives))
    steps = np.diff(offsets[order])  # to the next image: with headers, and labels between them
    is_inside = np.diff(archives[order]) == 0
    spans = sizes.copy()
    spans[order[:-1][is_inside]] = steps[is_inside]
    return Blocks(numbers.astype(np.int64), spans)


class BlockReader:
    """Reads images by reading their blocks, and keeps those that were used last."""

    def __init__(self, images: ImageMembers, blocks: Blocks) -> None:
        self._images, self._numbers = images, blocks.numbers
        archives, offsets, sizes = images.places.T
        count = int(blocks.numbers.max(initial=-1)) + 1
        self._starts = np.full(count, np.iinfo(np.int64).max)
        self._ends, self._archives = np.zeros(count, np.int64), np.zeros(count, np.int64)
        np.minimum.at(self._starts, blocks.numbers, offsets)
        np.maximum.at(self._ends, blocks.numbers, offsets + sizes)
        self._archives[blocks.numbers] = archives
        self._held: OrderedDict[int, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_held": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state | {"_lock": threading.Lock()})

    def read(self, rows: Rows) -> list[Content]:
        """Returns the images' files; what is missing of an archive is missing there."""
        found = []
        for row in rows.tolist():
            number, member = int(self._numbers[row]), self._images[row]
            start = member.offset - int(self._starts[number])
            data = self._block(number)[start : start + member.size]
            found.append(Content(data, member.size, member.suffix))
        return found

    def _block(self, number: int) -> bytes:
        with self._lock:
            if number not in self._held:
                self._make_room(int(self._ends[number] - self._starts[number]))
                self._held[number] = self._load(number)
            self._held.move_to_end(number)
            return self._held[number]

    def _make_room(self, size: int) -> None:
        """Forget blocks until another has room; two buffers do, as a batch may be of two."""
        while self._held and sum(map(len, self._held.values())) + size > 2 * BUFFER:
            self._held.popitem(last=False)

    def _load(self, number: int) -> bytes:
        start, end = int(self._starts[number]), int(self._ends[number])
        try:
            with open(self._images.shards[int(self._archives[number])], "rb") as archive:
                archive.seek(start)
                return archive.read(end - start)
        except OSError:
            return b""  # said of each image that is missing
