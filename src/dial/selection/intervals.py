"""The interval of an accuracy that was measured on a sample of images.

An accuracy stays in the interval unless what was seen is too unlikely under it: the outcomes of a
sample that are less likely than the one seen, and half of those as likely, must have more than 5 %
(Sterne 1954, with the mid-P of Lancaster 1961). Outcomes are numbers of right predictions. For a
sample without replacement from `N` images they are hypergeometric, else binomial.

Intervals of Clopper and Pearson reject 2.5 % on each side instead. For samples of 50 images they
cover the truth in 97 of 100 cases on average and in up to 99.6, so they are too long; with the
mid-P of each side they still are for accuracies above 94 %. This one covers it in 95 on average
and, for 97 of 100 accuracies from 50 to 98 %, in 93 to 97. More is hardly possible: for 2 of 100
accuracies no set of outcomes has a probability between 93 and 97 %.
"""

import math

import numpy as np
import numpy.typing as npt

from dial.errors import DialError

LEVEL = 0.05
"""What is less probable is too unlikely."""
_STEPS = 10_000, 200  # of an accuracy if there is no end of images: at least; times root of sample
_CELLS = 1_000_000  # outcomes times accuracies that are looked at together
_FAR = 5.0  # deviations from the accuracy that was seen: further away, none stays (Chebyshev)
_EQUAL = 1e-9  # difference up to which two numbers are the same

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def accuracy_interval(
    right: int, images: int, population: int | None = None
) -> tuple[float, float]:
    """Returns the 95 % interval of the accuracy on the images that a sample was drawn from.

    Args:
        right: images of the sample that are predicted right.
        images: images in the sample.
        population: images that it was drawn from, without replacement; None if there is no end of
            them.

    Raises:
        DialError: a sample that is larger than the population.

    >>> accuracy_interval(46, 50, population=200)
    (0.835, 0.96)
    >>> accuracy_interval(50, 50, population=50)
    (1.0, 1.0)
    """
    if population is not None and images > population:
        raise DialError(
            wanted=f"a sample of at most {population} images, which it was drawn from",
            got=f"{images}",
            fix="correct the column population, or remove it",
        )
    if not images:
        return 0.0, 1.0
    wrong = images - right
    if population is None:
        units = max(_STEPS[0], round(_STEPS[1] * math.sqrt(images)))
        low, high = min(right, 1), units - min(wrong, 1)
    else:
        units, low, high = population, right, population - wrong
    near = [round(units * share) for share in _bracket(right / images, images)]
    middle = min(max(round(units * right / images), low), high)
    ends = (max(low, near[0]), middle), (min(high, near[1]), middle)
    found = [
        _first_to_stay(*pair, right, images, units=units, finite=population is not None)
        for pair in ends
    ]
    return found[0] / units, found[1] / units


def _bracket(share: float, images: int) -> tuple[float, float]:
    """Returns the accuracies that are no further than `_FAR` deviations from the one seen."""
    square = _FAR**2 / images
    center = (share + square / 2) / (1 + square)
    half = math.sqrt(share * (1 - share) * square + square**2 / 4) / (1 + square)
    return center - half, center + half


def _first_to_stay(
    outer: int, middle: int, right: int, images: int, *, units: int, finite: bool
) -> int:
    """Returns the first number of right images, from `outer` to `middle`, that stays."""
    sign = 1 if middle >= outer else -1
    size = max(1, _CELLS // images)
    for start in range(outer, middle, sign * size):
        stop = sign * min(sign * middle, sign * start + size)
        candidates = np.arange(start, stop, sign)
        probability = unlikelihood(candidates, right, images, units=units, finite=finite)
        stay = np.flatnonzero(probability >= LEVEL - _EQUAL)
        if len(stay):
            return int(candidates[stay[0]])
    return middle


def unlikelihood(candidates: Ints, right: int, images: int, *, units: int, finite: bool) -> Floats:
    """Returns the probability of outcomes less likely than `right`, and half of those as likely.

    One for each of the candidates, which are numbers of right images among `units`. Computed from
    the ratios of neighboring outcomes, which have no large factorials in them.
    """
    k = candidates[:, None].astype(np.float64)
    above = np.arange(right, images)[None]  # the ratio of y + 1 to y for these y
    below = np.arange(right, 0, -1)[None]  # the ratio of y - 1 to y
    more, fewer = (k - above, k - below + 1) if finite else (k, k)
    rest = units - k - images if finite else units - k
    less, others = (rest + above + 1, rest + below) if finite else (rest, rest)
    with np.errstate(divide="ignore"):  # the logarithm of an outcome that cannot be is -inf
        up = np.log(np.maximum(more * (images - above), 0)) - np.log(less * (above + 1))
        down = np.log(np.maximum(others * below, 0)) - np.log(fewer * (images - below + 1))
    ratios = np.concatenate([np.cumsum(up, axis=1), np.cumsum(down, axis=1)], axis=1)
    largest = np.maximum(ratios.max(axis=1, initial=0, keepdims=True), 0)
    weights, seen = np.exp(ratios - largest), np.exp(-largest[:, 0])
    as_likely, less_likely = np.abs(ratios) <= _EQUAL, ratios < -_EQUAL
    counted = (weights * less_likely).sum(1) + ((weights * as_likely).sum(1) + seen) / 2
    probability: Floats = counted / (weights.sum(1) + seen)
    return probability
