"""Every image of a domain once, in order, without augmentation: for scoring and prediction."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from dial.data.decode import BadImage
from dial.data.pixels import Bytes, Pixels
from dial.data.reading import read_all
from dial.data.transforms import Preprocessing, centre


class EvaluationBatches:
    """All images of a domain; can be gone through again and again.

    They come in the order of their rows, for scoring, or `by_content`, for whatever becomes part
    of a model (calibration): rows follow paths, which may tell labels. Of `world_size` processes
    each gets a run of neighbours; `rows` tells which. `most` takes that many, the first ones; of
    images `by_content` they are a fair sample.
    """

    def __init__(
        self,
        pixels: Pixels,
        *,
        preprocessing: Preprocessing,
        batch_size: int = 64,
        by_content: bool = False,
        most: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        start, stop = (len(pixels) * part // world_size for part in (rank, rank + 1))
        order = pixels.order if by_content else np.arange(len(pixels), dtype=np.int64)
        self.rows = order[start:stop][:most]
        self._pixels, self._preprocessing, self._batch_size = pixels, preprocessing, batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self._batch_size)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for start in range(0, len(self.rows), self._batch_size):
            images = self._pixels.read(self.rows[start : start + self._batch_size])
            yield centre(images, preprocessing=self._preprocessing)


class FileBatch(NamedTuple):
    """Some of the files: `images` (n, channels, size, size) of `paths`, and those that are bad."""

    paths: list[Path]
    images: torch.Tensor
    bad: dict[Path, str]


def stream_files(
    paths: Sequence[Path],
    *,
    preprocessing: Preprocessing,
    batch_size: int = 64,
    doing: str = "reading images",
    quiet: bool = False,
) -> Iterator[FileBatch]:
    """Decode files once, on the fly, without a cache; bad ones are told, not raised."""
    size, channels = preprocessing.resize, preprocessing.channels
    images = read_all(paths, resize=size, channels=channels, doing=doing, quiet=quiet)
    good: dict[Path, Bytes] = {}
    bad: dict[Path, str] = {}
    for seen, (path, image) in enumerate(zip(paths, images, strict=True), start=1):
        if isinstance(image, BadImage):
            bad[path] = image.reason
        else:
            good[path] = image.pixels
        if len(good) == batch_size or seen == len(paths):
            pixels = np.stack([*good.values()]) if good else _none(preprocessing)
            yield FileBatch([*good], centre(pixels, preprocessing=preprocessing), bad)
            good, bad = {}, {}


def _none(preprocessing: Preprocessing) -> Bytes:
    return np.zeros((0, *[preprocessing.resize] * 2, preprocessing.channels), dtype=np.uint8)
