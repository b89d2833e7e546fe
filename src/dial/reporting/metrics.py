"""Figures about a run's predictions: shares, comparison, scores per class, warnings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dial.selection.accuracy import collapse

Labels = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]

_OTHER_MIX = 0.25  # total variation distance between predicted classes and the source's
_UNSURE = 0.5  # mean confidence


@dataclass(frozen=True)
class Comparison:
    """Two predictors on the same labelled images."""

    before: float
    after: float
    mended: int
    """Images that were wrong before and are right after."""
    broken: int
    """Images that were right before and are wrong after."""
    margin: float
    """Half the width of the 95 % interval of the difference, for other images like these."""


def compare(before: Labels, after: Labels, labels: Labels) -> Comparison:
    """Returns both accuracies and their difference's interval, that of paired differences."""
    was, now = before == labels, after == labels
    mended, broken = int((~was & now).sum()), int((was & ~now).sum())
    count = len(labels)
    variance = (mended + broken) / count - ((mended - broken) / count) ** 2
    margin = 1.96 * math.sqrt(variance / count)
    return Comparison(float(was.mean()), float(now.mean()), mended, broken, margin)


def shares(counts: Counts) -> npt.NDArray[np.float64]:
    """Returns counts `(K,)` as fractions of their sum."""
    return np.asarray(counts / max(1, counts.sum()))


def predicted_shares(predicted: Labels, classes: int) -> npt.NDArray[np.float64]:
    """Returns the share of predictions that each class gets, `(K,)`."""
    return shares(np.bincount(predicted, minlength=classes))


def confusion(predicted: Labels, labels: Labels, classes: int) -> Counts:
    """Returns the confusion matrix `(K, K)`: rows are labels, columns predictions."""
    cells = np.bincount(labels * classes + predicted, minlength=classes**2)
    return cells.reshape(classes, classes)


def per_class(
    classes: Sequence[str],
    source_counts: Counts,
    *,
    before: Labels | None,
    after: Labels,
    labels: Labels | None,
) -> list[dict[str, Any]]:
    """Returns a table row for each class; scores are None where there is nothing to divide by.

    A row has `name`, `source_share`, `share_after`; with labels also `images`, `recall` and
    `precision`; with `before` also `share_before` and `recall_before`.
    """
    from sklearn.metrics import precision_recall_fscore_support

    count = len(classes)
    columns: dict[str, npt.NDArray[Any]] = {
        "source_share": shares(source_counts),
        "share_after": predicted_shares(after, count),
    }
    if before is not None:
        columns["share_before"] = predicted_shares(before, count)
    if labels is not None:
        options = {"labels": np.arange(count), "zero_division": np.nan}
        precision, recall, _, images = precision_recall_fscore_support(labels, after, **options)
        columns |= {"images": images, "recall": recall, "precision": precision}
        if before is not None:
            scores = precision_recall_fscore_support(labels, before, **options)
            columns["recall_before"] = scores[1]
    rows: list[dict[str, Any]] = [{"name": name} for name in classes]
    for column, values in columns.items():
        for row, value in zip(rows, values.tolist(), strict=True):
            row[column] = None if math.isnan(value) else value
    return rows


def doubts(
    source_counts: Counts,
    after: Labels,
    *,
    confidence: Floats,
    comparison: Comparison | None,
    is_judged: bool = False,
) -> list[str]:
    """Returns a sentence for each figure that asks for a second look, worst first.

    A run that `is_judged` has said itself if its predictions collapsed.
    """
    sentences = []
    collapsed = "" if is_judged else collapse(after, len(source_counts))
    if collapsed:
        sentences.append(f"Collapse: {collapsed}. The predictions are not usable.")
    if comparison is not None and comparison.after < comparison.before:
        sentences.append(
            f"Adaptation made it worse: accuracy fell from {comparison.before:.1%} to "
            f"{comparison.after:.1%}. Try a smaller --entropy, more steps, or larger batches."
        )
    difference = predicted_shares(after, len(source_counts)) - shares(source_counts)
    other = float(np.abs(difference).sum() / 2)
    if other > _OTHER_MIX and not collapsed and source_counts.any():
        sentences.append(
            f"The class balance of the predictions differs from the source's: {other:.0%} of the "
            "predictions would have to change for the two to agree. If the target's classes are "
            "as frequent as the source's, at least that many predictions are wrong."
        )
    mean = float(confidence.mean())
    if mean < _UNSURE:
        sentences.append(
            f"The network is unsure: its mean confidence is {mean:.0%}. "
            "The training may have been too short, or the learning rate too small."
        )
    return sentences
