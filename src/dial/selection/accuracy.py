"""An estimate of a run's accuracy on the target without labels, and a warning if it got worse.

Average thresholded confidence: choose a threshold such that the fraction of held-out source images
with a confidence above it equals their accuracy; the fraction of target images above it is the
estimate. Confidence is the negative entropy of the predictions, after temperature scaling on the
same held-out images. Garg, Balakrishnan, Lipton, Neyshabur and Sedghi, "Leveraging Unlabeled Data
to Predict Out-of-Distribution Performance", ICLR 2022, https://arxiv.org/abs/2201.04234

The estimate assumes that confidence means the same on both domains. Minimizing the target's
entropy makes a network confident on the target whether it is right or not, so afterwards the
estimate is usually too high.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import entr, log_softmax, softmax

from dial.data.holdout import MIN_HELD_OUT
from dial.selection import validators
from dial.selection.outputs import Floats, LabelledObservation, Labels, Observation, Outputs

_ERRORS = 10  # wrong predictions needed for a reliable threshold
_TEMPERATURES = np.geomspace(0.05, 20, 241)
PREDICTIONS_PER_CLASS = 4
"""Predictions that are needed, for each class, to recognize a collapse."""
_COLLAPSED = 0.5  # predicted classes over classes, below which a target counts as collapsed


def judge(outputs: Outputs, *, holdout: float) -> dict[str, Any]:
    """Returns the label-free entries of a run's result: the estimated accuracy, and warnings.

    `holdout` is the fraction of the source that was to be held out.
    """
    outputs = outputs.with_features()
    entries: dict[str, Any] = {"estimated_accuracy": None, "warnings": _compare(outputs)}
    if outputs.held_out is not None:
        entries["estimated_accuracy"] = estimate(outputs.held_out, outputs.target)
        correct = outputs.held_out.correct()
        wrong = int((~correct).sum())
        if wrong < _ERRORS:
            entries["estimate_doubt"] = (
                f"it rests on the {wrong} of {len(correct)} held-out images that are predicted "
                "wrong, too few to tell what confidence an error has"
            )
    elif outputs.training is None:
        entries["no_estimate"] = "there are no source images to learn from what confidence means"
    elif holdout:
        small = f"the source is too small to hold {MIN_HELD_OUT} images out of training"
        entries["no_estimate"] = small
    else:
        entries["no_estimate"] = "no part of the source was held out of training"
    return entries


def estimate(held_out: LabelledObservation, target: Observation) -> float:
    """Returns the estimated fraction of target images that are predicted correctly."""
    correct = int(held_out.correct().sum())
    if correct == 0:
        return 0.0
    temperature = find_temperature(held_out.logits, held_out.labels)
    scaled = [(each.logits / temperature).astype(np.float64) for each in (held_out, target)]
    confidence = [-entr(softmax(logits, axis=1)).sum(1) for logits in scaled]
    threshold = np.sort(confidence[0])[-correct]  # so many images are at or above it
    return float(np.mean(confidence[1] >= threshold))


def find_temperature(logits: Floats, labels: Labels) -> float:
    """Returns the temperature from 0.05 to 20 that minimizes the cross-entropy."""
    rows = np.arange(len(labels))

    def loss(temperature: float) -> float:
        logs = log_softmax((logits / temperature).astype(np.float64), axis=1)
        return -float(logs[rows, labels].mean())

    return float(min(_TEMPERATURES, key=loss))


def _compare(outputs: Outputs) -> list[str]:
    """Returns a warning if the predictor scores lower than the one without adaptation.

    With a held-out source the validator is one that does not contain the minimized loss.
    """
    if outputs.unadapted is None or outputs.training is None:
        return []
    name = "deep_embedded_validation" if outputs.held_out is not None else validators.DEFAULT
    after = validators.score(name, outputs)
    before = validators.score(name, replace(outputs, target=outputs.unadapted))
    if after >= before:
        return []
    return [
        f"adaptation seems to hurt: {name} of the target is {after:.3g} with it and "
        f"{before:.3g} without; compare with a run of --method source_only"
    ]


def collapse(predicted: npt.NDArray[np.int64], classes: int) -> str:
    """Returns a sentence if the predictions collapsed into few of the classes, else nothing."""
    share = np.bincount(predicted, minlength=classes) / len(predicted)
    used = int((share > 0).sum())
    if used >= _COLLAPSED * classes or len(predicted) < PREDICTIONS_PER_CLASS * classes:
        return ""
    return (
        f"the target's predictions have collapsed into {used} of {classes} classes, "
        f"{share.max():.0%} of them into one; try a smaller --entropy or --lr"
    )
