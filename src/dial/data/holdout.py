"""Parts of the source: one that training does not see, to judge by afterwards, or a fair sample."""

import math
from dataclasses import replace

import numpy as np

from dial.data.domain import ImageArray, ImageFiles, Labels
from dial.data.pixels import Rows, SomePixels
from dial.data.prepare import PreparedDomain

LEAST = 30
"""Images; fewer are not worth what training loses by them."""
_HOLD_OUT = 2  # beside the numbers of the streams of batches, so that no two draw alike


def hold_out(
    source: PreparedDomain, share: float, *, seed: int
) -> tuple[PreparedDomain, PreparedDomain | None]:
    """Split a labelled domain into what is trained on and what is judged by.

    Of each class `floor(share * count)` images are held out. Which ones, the seed and the images'
    content decide, not their paths. Where that would be fewer than `LEAST` in all, none are.
    """
    rows = _choose(source, share, seed)
    if len(rows) < LEAST:
        return source, None
    kept = np.setdiff1d(np.arange(len(source.pixels), dtype=np.int64), rows)
    return _take(source, kept), _take(source, rows)


def sample(source: PreparedDomain, most: int) -> PreparedDomain:
    """At most so many images, of each class as many as of any other, as far as it has them.

    Each class has one, also where that makes it more than `most`.
    """
    assert source.labels is not None  # noqa: S101 - a source has them
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
    """How many images would be held out, if they were enough."""
    return sum(_of(share, images) for images in labels.counts.values())


def _of(share: float, images: int) -> int:
    return math.floor(share * images + 1e-9)  # 0.29 * 100 is a little less than 29


def _choose(source: PreparedDomain, share: float, seed: int) -> Rows:
    assert source.labels is not None  # noqa: S101 - a source has them
    by_content = source.labels.indices[source.pixels.order]
    chosen = []
    for label in range(len(source.labels.classes)):
        members = source.pixels.order[by_content == label]
        random = np.random.default_rng((seed, _HOLD_OUT, label))
        chosen.append(random.permutation(members)[: _of(share, len(members))])
    return np.sort(np.concatenate(chosen))


def _take(domain: PreparedDomain, rows: Rows) -> PreparedDomain:
    assert domain.labels is not None  # noqa: S101 - a source has them
    images = domain.images
    if isinstance(images, ImageFiles):
        some: ImageFiles | ImageArray = ImageFiles(tuple(images.paths[row] for row in rows))
    else:
        some = ImageArray(images.pixels[rows])
    pixels = SomePixels(domain.pixels, rows)
    return replace(domain, images=some, pixels=pixels, labels=domain.labels.take(rows))
