"""Early stopping of trials that are clearly behind the others at the same epoch."""

from collections.abc import Sequence
from statistics import median
from typing import TypedDict

from dial.selection import validators

_OTHERS = 2  # trials that must have reached an epoch before another one is stopped there
_MARGIN = 0.05  # of the others' median, by which a score must at least be below it


class Pruned(Exception):  # noqa: N818 - not an error
    """A trial stops early: `Pruned(epoch, score)`."""


class Standing(TypedDict):
    """A trial after an epoch."""

    score: float
    correct: list[bool]
    """Whether each held-out source image is predicted correctly."""


def should_stop(trial: Standing, others: Sequence[Standing]) -> bool:
    """Returns whether a trial is clearly behind those of the others that keep the source."""
    correct = [other["correct"] for other in others]
    if trial["correct"] and sum(trial["correct"]) >= max(map(sum, correct), default=0):
        return False  # the best on the source, with which the others are compared
    sound = validators.keep_the_source([*correct, trial["correct"]])
    pairs = zip(others, sound[:-1], strict=True)
    return is_behind(trial["score"], [other["score"] for other, keeps in pairs if keeps])


def is_behind(score: float, others: Sequence[float]) -> bool:
    """Returns whether a score is clearly below the median of others.

    Clearly: by more than the range of the others and by more than 5 % of the median.

    >>> is_behind(0.5, [1.0, 1.1]), is_behind(0.96, [1.0, 1.1]), is_behind(0.5, [1.0])
    (True, False, False)
    """
    if len(others) < _OTHERS:
        return False
    middle = median(others)
    margin = max(max(others) - min(others), _MARGIN * abs(middle))
    return score < middle - margin
