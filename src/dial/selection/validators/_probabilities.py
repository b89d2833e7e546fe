"""Probabilities and their entropies from logits, in float64 and safe from overflow."""

from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def log_softmax(logits: npt.NDArray[Any]) -> Doubles:
    """Logarithms of the probabilities, `(..., K) -> (..., K)`."""
    shifted = logits.astype(np.float64)
    shifted = shifted - shifted.max(-1, keepdims=True)
    normed: Doubles = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return normed


def softmax(logits: npt.NDArray[Any]) -> Doubles:
    """Probabilities, `(..., K) -> (..., K)`.

    >>> softmax(np.zeros((1, 4)))
    array([[0.25, 0.25, 0.25, 0.25]])
    """
    probabilities: Doubles = np.exp(log_softmax(logits))
    return probabilities


def entropy(probabilities: Doubles) -> Doubles:
    """`-sum_k p_k log p_k`, `(..., K) -> (...)`; 0 log 0 is 0."""
    safe = np.where(probabilities > 0, probabilities, 1.0)
    found: Doubles = -(probabilities * np.log(safe)).sum(-1)
    return found
