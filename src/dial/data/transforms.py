"""From pixels to the input of a network: crop, flip, distort, scale, normalize."""

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from dial.data.decode import Bytes
from dial.errors import DialError
from dial.torchvision_guard import prepare_torchvision

prepare_torchvision()
from torchvision.transforms.v2 import functional as F  # noqa: E402 - only after the guard

_HALF = 0.5
LARGEST = 4096
"""Pixels of an image's side; a single one of this size takes 200 MB in a network."""


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How images become tensors; plain values, so that it can be saved with a model.

    Images are squeezed into `resize` x `resize` (once, in the cache) and cropped to `size`. The
    default is 256 for a crop of 224, and the same ratio for other sizes.
    """

    size: int = 224
    resize: int = 0
    channels: int = 3
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    flip: bool = True
    distort: float = 0.0
    """Standard deviation of the entries of a random linear map of each training image around the
    identity, which stretches, turns and shears it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "resize", self.resize or round(self.size * 256 / 224))
        for name in ("mean", "std"):  # JSON has lists
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not 1 <= self.size <= self.resize <= LARGEST:
            raise DialError(
                wanted=f"an image size of 1 to {LARGEST}, not above the size before cropping",
                got=f"size={self.size}, resize={self.resize}",
                fix="use --image-size 224, or 128 to 160 on a CPU",
            )
        fits = self.channels in (1, 3) and self.channels == len(self.mean) == len(self.std)
        spread = all(0 < deviation < math.inf for deviation in self.std)
        if not (fits and spread and all(map(math.isfinite, self.mean))):
            raise DialError(
                wanted="one channel or three, with a finite mean and a positive deviation for each",
                got=f"mean={self.mean}, std={self.std}",
                fix="give one value of each, or three",
            )

    @classmethod
    def for_network(cls, network: Any, image_size: int | None) -> "Preprocessing":
        """Returns that of a `Backbone`'s input; None is the network's own size."""
        size, channels = image_size or network.image_size, len(network.mean)
        return cls(
            size=size,
            resize=round(size / network.crop_ratio),
            channels=channels,
            mean=network.mean,
            std=network.std,
            flip=channels > 1,  # a flipped digit is no digit
            distort=network.distort,
        )

    @classmethod
    def for_digits(cls) -> "Preprocessing":
        """Returns that of the embedded digits: 28x28 grey in [0, 1], no crop and no flip."""
        return cls(size=28, resize=28, channels=1, mean=(0.0,), std=(1.0,), flip=False)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, for JSON; `Preprocessing(**fields)` is the same object."""
        return asdict(self)


class Augmentation(NamedTuple):
    """The random crops, flips and linear maps of a batch, one row for each image."""

    top: np.ndarray[Any, np.dtype[np.int64]]
    left: np.ndarray[Any, np.dtype[np.int64]]
    flip: np.ndarray[Any, np.dtype[np.bool_]]
    maps: np.ndarray[Any, np.dtype[np.float64]]

    @classmethod
    def draw(
        cls, preprocessing: Preprocessing, count: int, *, random: np.random.Generator
    ) -> "Augmentation":
        """Draw a crop, a flip and a map for each of `count` images."""
        spare = preprocessing.resize - preprocessing.size
        top, left = random.integers(0, spare, size=(2, count), endpoint=True)
        flip = (random.random(count) < _HALF) & preprocessing.flip
        change = random.normal(scale=preprocessing.distort, size=(count, 2, 2))
        return cls(top, left, flip, np.eye(2) + change)

    def take(self, part: slice) -> "Augmentation":
        """Returns what was drawn for some of the images."""
        top, left, flip, maps = self
        return Augmentation(top[part], left[part], flip[part], maps[part])


def augment(
    images: Bytes, augmentation: Augmentation, *, preprocessing: Preprocessing
) -> torch.Tensor:
    """Crop, flip and distort: `(n, resize, resize, channels)` bytes to `(n, channels, size, size)`.

    Every image has its own; v2's random transforms draw once for a batch.
    """
    size = preprocessing.size
    batch = torch.empty((len(images), size, size, images.shape[3]), dtype=torch.uint8)
    out = batch.permute(0, 3, 1, 2)
    crops = augmentation.top, augmentation.left, augmentation.flip
    for row, image, top, left, flip in zip(out, _channels_first(images), *crops, strict=True):
        crop = F.crop(image, int(top), int(left), size, size)
        row.copy_(F.horizontal_flip(crop) if flip else crop)
    scaled = _scale(out)
    return _normalize(
        _map(scaled, augmentation.maps) if preprocessing.distort else scaled, preprocessing
    )


def center(images: Bytes, *, preprocessing: Preprocessing) -> torch.Tensor:
    """Crop the center: `(n, resize, resize, channels)` bytes to `(n, channels, size, size)`."""
    size = preprocessing.size
    crops = F.center_crop(_channels_first(images), [size, size])
    return _normalize(_scale(crops), preprocessing)


def _channels_first(images: Bytes) -> torch.Tensor:
    """Returns a view in torch's order; memory stays `channels_last`."""
    return torch.from_numpy(np.require(images, requirements="W")).permute(0, 3, 1, 2)


def _scale(batch: torch.Tensor) -> torch.Tensor:
    return F.to_dtype(batch, torch.float32, scale=True)  # type: ignore[no-any-return]


def _map(batch: torch.Tensor, maps: np.ndarray[Any, np.dtype[np.float64]]) -> torch.Tensor:
    """Sample each image at its own linear map of the pixels' places; the edge goes on outside."""
    maps = np.concatenate([maps, np.zeros((len(maps), 2, 1))], axis=2)
    grid = nn.functional.affine_grid(
        torch.from_numpy(maps).float(), list(batch.shape), align_corners=False
    )
    return nn.functional.grid_sample(batch, grid, padding_mode="border", align_corners=False)


def _normalize(batch: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """Subtract the mean and divide by the deviation of each channel, in place."""
    mean, std = list(preprocessing.mean), list(preprocessing.std)
    return F.normalize(batch, mean, std, inplace=True)  # type: ignore[no-any-return]
