"""Batches of cached pixels to what a network takes: crop, flip, scale, normalise."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torchvision.transforms.v2 import functional as F

from dial.data.pixels import Bytes
from dial.errors import DialError

_HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How images become tensors; plain values, so that it can be saved beside a model.

    Images are squeezed into `resize` x `resize` (once, in the cache) and cropped to `size`:
    by default 256 for a crop of 224, and in that proportion for others.
    """

    size: int = 224
    resize: int = 0
    channels: int = 3
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    flip: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "resize", self.resize or round(self.size * 256 / 224))
        for name in ("mean", "std"):  # they may come back from JSON as lists
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not 1 <= self.size <= self.resize:
            raise DialError(
                wanted="an image size of one pixel or more, not above the size before cropping",
                got=f"size={self.size}, resize={self.resize}",
                fix="use --image-size 224, or 128 to 160 on a CPU",
            )
        if not self.channels == len(self.mean) == len(self.std):
            raise DialError(
                wanted=f"a mean and a deviation for each of {self.channels} channels",
                got=f"mean={self.mean}, std={self.std}",
                fix="give as many values as channels",
            )

    @classmethod
    def for_digits(cls) -> "Preprocessing":
        """The embedded digits: 28x28 grey in [0, 1], as they are (a flipped digit is no digit)."""
        return cls(size=28, resize=28, channels=1, mean=(0.0,), std=(1.0,), flip=False)

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON; `Preprocessing(**d)` gives the object back."""
        return asdict(self)


@dataclass(frozen=True)
class Augmentation:
    """The random choices for a batch of `n` images, one row for each image."""

    top: np.ndarray[Any, np.dtype[np.int64]]
    left: np.ndarray[Any, np.dtype[np.int64]]
    flip: np.ndarray[Any, np.dtype[np.bool_]] = field(repr=False)

    @classmethod
    def draw(
        cls, preprocessing: Preprocessing, count: int, *, random: np.random.Generator
    ) -> "Augmentation":
        """Choose a crop and a flip for each of `count` images."""
        spare = preprocessing.resize - preprocessing.size
        top, left = random.integers(0, spare, size=(2, count), endpoint=True)
        return cls(top, left, (random.random(count) < _HALF) & preprocessing.flip)

    def take(self, part: slice) -> "Augmentation":
        """The choices for some of the images."""
        return Augmentation(self.top[part], self.left[part], self.flip[part])


def augment(
    images: Bytes, augmentation: Augmentation, *, preprocessing: Preprocessing
) -> torch.Tensor:
    """(n, resize, resize, channels) uint8 to (n, channels, size, size) float, moved and flipped.

    Every image has a crop and a flip of its own; v2's random transforms choose once for a batch.
    """
    size = preprocessing.size
    batch = torch.empty((len(images), size, size, images.shape[3]), dtype=torch.uint8)
    out = batch.permute(0, 3, 1, 2)
    choices = zip(augmentation.top, augmentation.left, augmentation.flip, strict=True)
    for row, image, (top, left, flip) in zip(out, _channels_first(images), choices, strict=True):
        crop = F.crop(image, int(top), int(left), size, size)
        row.copy_(F.horizontal_flip(crop) if flip else crop)
    return _normalise(out, preprocessing)


def centre(images: Bytes, *, preprocessing: Preprocessing) -> torch.Tensor:
    """(n, resize, resize, channels) uint8 to (n, channels, size, size) float, each one's middle."""
    size = preprocessing.size
    return _normalise(F.center_crop(_channels_first(images), [size, size]), preprocessing)


def _channels_first(images: Bytes) -> torch.Tensor:
    """A view in torch's order; the channels stay innermost in memory (`channels_last`)."""
    return torch.from_numpy(np.require(images, requirements="W")).permute(0, 3, 1, 2)


def _normalise(batch: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """Scale to [0, 1], subtract the mean, divide by the deviation, channel by channel."""
    scaled = F.to_dtype(batch, torch.float32, scale=True)
    mean, std = list(preprocessing.mean), list(preprocessing.std)
    return F.normalize(scaled, mean, std, inplace=True)  # type: ignore[no-any-return]
