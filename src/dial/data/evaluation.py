"""Every image of a domain once, in order, without augmentation: for scoring and prediction."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from dial.console import track
from dial.data.decode import BadImage, Bytes
from dial.data.domain import Images
from dial.data.transforms import Preprocessing, center

if TYPE_CHECKING:  # prediction does without prepared pixels
    from dial.data.pixels import Pixels


class EvaluationBatches:
    """All images of a domain; can be iterated again and again.

    They come in the order of their rows, for scoring, or `by_content`, for whatever becomes part
    of a model (calibration): rows follow paths, and paths may reveal labels. Each of `world_size`
    processes gets a consecutive part, whose rows are in `rows`. `most` takes only the first ones,
    which `by_content` are a fair sample. With a `title` there is a bar of progress.
    """

    def __init__(
        self,
        pixels: "Pixels",
        *,
        preprocessing: Preprocessing,
        batch_size: int = 64,
        by_content: bool = False,
        most: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        title: str = "",
    ) -> None:
        start, stop = (len(pixels) * part // world_size for part in (rank, rank + 1))
        order = pixels.order if by_content else np.arange(len(pixels), dtype=np.int64)
        self.rows = order[start:stop][:most]
        self._pixels, self._preprocessing, self._batch_size = pixels, preprocessing, batch_size
        self._title = title

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self._batch_size)

    def __iter__(self) -> Iterator[torch.Tensor]:
        if not self._title:
            return self._batches()
        total = len(self.rows)
        return track(self._batches(), total=total, title=self._title, size=len)

    def _batches(self) -> Iterator[torch.Tensor]:
        for start in range(0, len(self.rows), self._batch_size):
            images = self._pixels.read(self.rows[start : start + self._batch_size])
            yield center(images, preprocessing=self._preprocessing)


class NamedBatch(NamedTuple):
    """Images `(n, channels, size, size)` with their `names`, and the reasons of `bad` ones."""

    names: list[str]
    images: torch.Tensor
    bad: dict[str, str]


def stream_images(
    images: Images,
    *,
    preprocessing: Preprocessing,
    batch_size: int = 64,
    title: str = "reading images",
    quiet: bool = False,
) -> Iterator[NamedBatch]:
    """Decode each image once, on the fly, without a cache; bad files are reported, not raised.

    A batch is of so many rows, and of fewer images where some are bad: so an image's batch follows
    from its row, also where other processes read other rows.
    """
    images, size, channels = images.distinct(), preprocessing.resize, preprocessing.channels
    names = images.names
    decoded = images.decode(resize=size, channels=channels, title=title, quiet=quiet)
    good: list[str] = []
    pixels: list[Bytes] = []
    bad: dict[str, str] = {}
    for row, image in enumerate(decoded):
        if isinstance(image, BadImage):
            bad[names[row]] = image.reason
        else:
            good.append(names[row])
            pixels.append(image.pixels)
        if (row + 1) % batch_size == 0 or row == len(names) - 1:
            batch = np.stack(pixels) if pixels else np.zeros((0, size, size, channels), np.uint8)
            yield NamedBatch(good, center(batch, preprocessing=preprocessing), bad)
            good, pixels, bad = [], [], {}
