"""Confidence in predictions, and the temperature that makes it mean what it says."""

import numpy as np
import numpy.typing as npt
from scipy.special import entr, log_softmax, softmax

from dial.selection.outputs import Floats, LabelledObservation, Labels, Observation

_TEMPERATURES = np.geomspace(0.05, 20, 241)

Doubles = npt.NDArray[np.float64]


def find_temperature(logits: Floats, labels: Labels) -> float:
    """Returns the temperature from 0.05 to 20 that minimizes the cross-entropy."""
    rows = np.arange(len(labels))

    def loss(temperature: float) -> float:
        logs = log_softmax((logits / temperature).astype(np.float64), axis=1)
        return -float(logs[rows, labels].mean())

    return float(min(_TEMPERATURES, key=loss))


def probabilities(logits: Floats, temperature: float = 1.0) -> Doubles:
    """Returns the probabilities of the classes, `(N, K)`."""
    shares: Doubles = softmax((logits / temperature).astype(np.float64), axis=1)
    return shares


def share_above_threshold(
    held_out: LabelledObservation, target: Observation, *, temperature: float
) -> float:
    """Returns the fraction of target images with a negative entropy above a threshold.

    As many held-out images are above it as are predicted correctly.
    """
    correct = int(held_out.correct().sum())
    if correct == 0:
        return 0.0
    known, asked = (
        -entr(probabilities(each.logits, temperature)).sum(1) for each in (held_out, target)
    )
    return float(np.mean(asked >= np.sort(known)[-correct]))
