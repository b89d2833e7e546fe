"""What can be said about a run's accuracy without labels of the target.

An interval that should contain it, or the reason why there is none; and warnings, if adaptation
seems to have made predictions worse.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dial.data.domain import abbreviate
from dial.selection import comparison, estimators
from dial.selection.comparison import Comparison
from dial.selection.neighborhood import Labels, agree
from dial.selection.outputs import Outputs, find_neighbors
from dial.selection.swaps import find_swaps

SHOWN, OTHER = "former_neighbors", "neighbors"
"""The estimator whose interval is shown, and the one that must not contradict it."""
MARGINS = 0.115, 0.065
"""How far the truth may be below and above the estimate: `python -m benchmarks.estimates`."""
WIDEST = 0.2
"""An interval as wide as this says too little to be shown; so do estimates this far apart."""
PREDICTIONS_PER_CLASS = 4
"""Predictions that are needed, for each class, to recognize a collapse."""
_AGREED = 0.5  # share of neighbors with the predicted label, from which on there is no collapse
_COLLAPSED = 0.5  # predicted classes over classes, below which a target counts as collapsed


def judge(outputs: Outputs, *, classes: Sequence[str]) -> dict[str, Any]:
    """Returns the label-free entries of a run's result: the estimated accuracy, and warnings.

    Args:
        outputs: of the run.
        classes: their names.
    """
    outputs = outputs.with_features()
    entries = estimate(outputs)
    compared = comparison.compare(outputs)
    if compared is not None:
        entries["comparison"] = compared._asdict()
    predicted = outputs.target.logits.argmax(1)
    around = None if outputs.training is None else find_neighbors(outputs)
    collapsed = _collapsed(predicted, around, len(classes))
    doubts = [_hurts(compared), collapsed or _swapped(predicted, around, classes)]
    return entries | {"warnings": [f"adaptation seems to hurt: {each}" for each in doubts if each]}


def _hurts(compared: Comparison | None) -> str:
    if compared is None or not compared.hurts:
        return ""
    return (
        f"it changed {compared.changed} of {compared.images} predictions, and the source images "
        f"nearest to these support the former ones (p = {compared.chance:.2g}); compare with a run "
        "of --method source_only"
    )


def _swapped(predicted: Labels, around: Labels | None, classes: Sequence[str]) -> str:
    if around is None:
        return ""
    found = find_swaps(predicted[: len(around)], around, len(classes))
    if found is None:
        return ""
    names = [f"{classes[one]} look like {classes[other]}" for one, other in found.names.items()]
    return (
        f"classes seem to have changed places: images predicted as {abbreviate(names)} in the "
        f"source ({found.images} of {len(around)} images, p = {found.chance:.2g}); try a "
        "smaller --entropy"
    )


def _collapsed(predicted: Labels, around: Labels | None, classes: int) -> str:
    """A target that has few of the classes is no collapse: there the neighbors agree."""
    if around is not None and agree(around, predicted[: len(around)]).mean() >= _AGREED:
        return ""
    return collapse(predicted, classes)


def estimate(outputs: Outputs) -> dict[str, Any]:
    """Returns the estimated accuracy with its interval, or the reason why there is none."""
    none: dict[str, Any] = {"estimated_accuracy": None, "estimated_interval": None}
    outputs = outputs.with_features()
    shown, other = map(estimators.ESTIMATORS.create, (SHOWN, OTHER))
    lacking = shown.lacks(outputs)
    if lacking:
        return none | {"no_estimate": lacking}
    point = shown.estimate(outputs)
    second = point if other.lacks(outputs) else other.estimate(outputs)
    if abs(point - second) >= WIDEST:
        low, high = sorted((point, second))
        reason = "neighbors in the pretrained network and in the trained one tell different things"
        return none | {"no_estimate": f"{reason}: {low:.0%} and {high:.0%}"}
    low, high = interval(point, images=len(outputs.target.logits))
    if high - low >= WIDEST:
        reason = f"{len(outputs.target.logits)} images are too few"
        return none | {
            "no_estimate": f"{reason}: it could be anything from {low:.0%} to {high:.0%}"
        }
    return {"estimated_accuracy": point, "estimated_interval": [low, high]}


def interval(point: float, *, images: int) -> tuple[float, float]:
    """Returns an interval that should contain the accuracy on so many images.

    Few images have an accuracy of their own: two standard errors are added to the margins.

    >>> [round(end, 2) for end in interval(0.8, images=10_000)]
    [0.68, 0.87]
    """
    error = 2 * math.sqrt(point * (1 - point) / images)
    below, above = (math.hypot(margin, error) for margin in MARGINS)
    return max(0.0, point - below), min(1.0, point + above)


def collapse(predicted: Labels, classes: int) -> str:
    """Returns a sentence if the predictions collapsed into few of the classes, else nothing."""
    share = np.bincount(predicted, minlength=classes) / len(predicted)
    used = int((share > 0).sum())
    if used >= _COLLAPSED * classes or len(predicted) < PREDICTIONS_PER_CLASS * classes:
        return ""
    return (
        f"the target's predictions have collapsed into {used} of {classes} classes, "
        f"{share.max():.0%} of them into one; try a smaller --lr or, where the method "
        "has one, a smaller --entropy"
    )
