"""The mathematics and the preprocessing once more, in NumPy and Pillow, from the formulas alone."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from dial.data.transforms import Preprocessing

Array = npt.NDArray[np.float64]


def channels_first(x: Array) -> Array:
    """`(N, C, *)` as `(C, values)`."""
    return np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)


def broadcast(values: Array, x: Array) -> Array:
    return values.reshape(1, -1, *[1] * (x.ndim - 2))


def location_and_scale(
    name: str, x: Array, prior: tuple[Array, Array] | None = None, weight: float = 0.2
) -> tuple[Array, Array]:
    values = channels_first(x)
    mean, var = values.mean(1), values.var(1)
    if name == "normal":
        return mean, np.sqrt(var + 1e-5)
    if name == "epsilon":
        return mean, np.sqrt(var + 1)
    if name == "laplace":
        median = np.median(values, axis=1)
        return median, np.abs(values - median[:, None]).mean(1)
    if prior is None:
        return mean, np.sqrt(var + 1e-5)
    mean0, var0 = prior
    square = weight * var + (1 - weight) * var0 + weight * (1 - weight) * (mean - mean0) ** 2
    return weight * mean + (1 - weight) * mean0, np.sqrt(square + 1e-5)


def align(name: str, x: Array, prior: tuple[Array, Array] | None = None) -> Array:
    location, scale = location_and_scale(name, x, prior)
    return (x - broadcast(location, x)) / broadcast(scale, x)


def network_input(path: Path, preprocessing: Preprocessing) -> torch.Tensor:
    """An image as the network wants it, `(C, size, size)`, as the guide tells to make it."""
    side, size = preprocessing.resize, preprocessing.size
    with Image.open(path) as image:
        image.draft("RGB", (round(1.5 * side),) * 2)
        rgb = image.convert("RGB")
    square = rgb.resize((side, side), Image.Resampling.BILINEAR, reducing_gap=2.0)
    start = (side - size) // 2
    crop = np.asarray(square)[start : start + size, start : start + size]
    x = (crop / 255 - np.array(preprocessing.mean)) / np.array(preprocessing.std)
    return torch.from_numpy(x).permute(2, 0, 1).float()
