"""Parts of the source: a held-out split that training does not see, or a class-balanced sample."""

import math

import numpy as np

from dial.data.domain import Labels
from dial.data.pixels import Rows, SomePixels
from dial.data.prepare import PreparedSource

MIN_HELD_OUT = 30
"""Images; fewer are not worth what training loses by them."""
_HOLD_OUT = 2  # of the seed sequence, beside the numbers of `batches`: no two streams are alike


def hold_out(
    source: PreparedSource, share: float, *, seed: int
) -> tuple[PreparedSource, PreparedSource | None]:
    """Split a source. Returns the part to train on and the part to judge by.

    Of each class `floor(share * count)` images are held out. The seed and the images' content
    decide which ones, not their paths. If they would be fewer than `MIN_HELD_OUT`, none are.
    """
    by_content = source.labels.indices[source.pixels.order]
    parts = []
    for label in range(len(source.labels.classes)):
        members = source.pixels.order[by_content == label]
        random = np.random.default_rng((seed, _HOLD_OUT, label))
        parts.append(random.permutation(members)[: _share_of(len(members), share)])
    rows = np.sort(np.concatenate(parts))
    if len(rows) < MIN_HELD_OUT:
        return source, None
    rest = np.setdiff1d(np.arange(len(source.pixels), dtype=np.int64), rows)
    return _take(source, rest), _take(source, rows)


def sample(source: PreparedSource, most: int) -> PreparedSource:
    """Returns at most `most` images, as evenly over the classes as their sizes allow.

    Each class keeps one image, even if that makes more than `most`.
    """
    order, by_content = source.pixels.order, source.labels.indices[source.pixels.order]
    most = max(most, len(source.labels.classes))
    if len(order) <= most:
        return source
    turns = np.empty(len(order), dtype=np.int64)
    for label in range(len(source.labels.classes)):
        members = by_content == label
        turns[members] = np.arange(members.sum())
    rows = order[np.argsort(turns, kind="stable")[:most]]
    return _take(source, np.sort(rows))


def count(labels: Labels, share: float) -> int:
    """Returns the number of images to hold out, before the check against `MIN_HELD_OUT`."""
    return sum(_share_of(images, share) for images in labels.counts.values())


def _share_of(images: int, share: float) -> int:
    return math.floor(share * images + 1e-9)  # 0.29 * 100 is a little less than 29


def _take(source: PreparedSource, rows: Rows) -> PreparedSource:
    pixels = SomePixels(source.pixels, rows)
    return PreparedSource(source.name, source.images.take(rows), pixels, source.labels.take(rows))
