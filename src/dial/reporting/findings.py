"""What a run's predictions say, in figures: what changed, what is right, what looks wrong."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]

LEAST = 4
"""Predictions for each class that it takes to tell a collapse."""
_FEW = 0.5  # predicted classes over classes, below which a target counts as collapsed
_OTHER_MIX = 0.25  # of the predictions are of other classes than the source's mix would have
_UNSURE = 0.5


@dataclass(frozen=True)
class Comparison:
    """Two predictors on the same images with known labels."""

    before: float
    after: float
    mended: int
    """Images that were wrong and are right now."""
    broken: int
    """Images that were right and are wrong now."""
    margin: float
    """Half the width of the 95 % interval of the difference, for other images like these."""


@dataclass(frozen=True)
class ClassRow:
    """One class: shares of source images and of predictions, and scores where there are labels."""

    name: str
    source_share: float
    share_before: float | None
    share_after: float
    images: int | None
    recall_before: float | None
    recall: float | None
    precision: float | None


def compare(before: Labels, after: Labels, labels: Labels) -> Comparison:
    """Accuracies, and what lies between them; the interval is that of paired differences."""
    was, now = before == labels, after == labels
    mended, broken = int((~was & now).sum()), int((was & ~now).sum())
    count = len(labels)
    variance = (mended + broken) / count - ((mended - broken) / count) ** 2
    margin = 1.96 * math.sqrt(variance / count)
    return Comparison(float(was.mean()), float(now.mean()), mended, broken, margin)


def shares(predicted: Labels, classes: int) -> npt.NDArray[np.float64]:
    """The share of predictions that each class gets, `(K,)`."""
    return np.bincount(predicted, minlength=classes) / len(predicted)


def collapse(predicted: Labels, classes: int) -> str:
    """A sentence if predictions have collapsed into few of the classes; empty if not."""
    share = shares(predicted, classes)
    used = int((share > 0).sum())
    if used >= _FEW * classes or len(predicted) < LEAST * classes:
        return ""
    return (
        f"the target's predictions have collapsed into {used} of {classes} classes, "
        f"{share.max():.0%} of them into one; try a smaller --entropy or --lr"
    )


def confusion(predicted: Labels, labels: Labels, classes: int) -> Counts:
    """How many images of each class (rows) are taken for each class (columns), `(K, K)`."""
    flat = np.bincount(labels * classes + predicted, minlength=classes**2)
    return flat.reshape(classes, classes).astype(np.int64)


def per_class(
    classes: tuple[str, ...],
    source_counts: Counts,
    before: Labels | None,
    after: Labels,
    labels: Labels | None,
) -> list[ClassRow]:
    """A row for each class; recall and precision are None where there is nothing to divide by."""
    count = len(classes)
    source = source_counts / max(1, source_counts.sum())
    was = None if before is None else shares(before, count)
    now = shares(after, count)
    own = None if labels is None else np.bincount(labels, minlength=count)
    right = _right(after, labels, count)
    right_before = None if before is None else _right(before, labels, count)
    given = np.bincount(after, minlength=count)
    return [
        ClassRow(
            name=name,
            source_share=float(source[i]),
            share_before=None if was is None else float(was[i]),
            share_after=float(now[i]),
            images=None if own is None else int(own[i]),
            recall_before=_ratio(right_before, own, i),
            recall=_ratio(right, own, i),
            precision=_ratio(right, given, i),
        )
        for i, name in enumerate(classes)
    ]


def _right(predicted: Labels, labels: Labels | None, classes: int) -> Counts | None:
    if labels is None:
        return None
    return np.bincount(labels[predicted == labels], minlength=classes).astype(np.int64)


def _ratio(part: Counts | None, whole: Counts | None, index: int) -> float | None:
    if part is None or whole is None or whole[index] == 0:
        return None
    return float(part[index] / whole[index])


def doubts(
    source_counts: Counts,
    after: Labels,
    confidence: npt.NDArray[np.float32],
    comparison: Comparison | None,
) -> list[str]:
    """What in the figures asks for a second look, worst first; sentences."""
    told = []
    collapsed = collapse(after, len(source_counts))
    if collapsed:
        told.append(f"Collapse: {collapsed}. The predictions are not usable.")
    if comparison is not None and comparison.after < comparison.before:
        told.append(
            f"Adaptation made it worse: accuracy fell from {comparison.before:.1%} to "
            f"{comparison.after:.1%}. Try a smaller --entropy, more steps, or larger batches."
        )
    source = source_counts / max(1, source_counts.sum())
    other = float(np.abs(shares(after, len(source_counts)) - source).sum() / 2)
    if other > _OTHER_MIX and not collapsed:
        told.append(
            f"The predicted classes are mixed otherwise than the source's: {other:.0%} of the "
            "predictions would have to change for the two to agree. If the target's images are "
            "mixed like the source's, so many predictions at least are wrong."
        )
    if float(confidence.mean()) < _UNSURE:
        told.append(
            f"The network is unsure: its mean confidence is {float(confidence.mean()):.0%}. "
            "The training may have been too short, or the learning rate too small."
        )
    return told
