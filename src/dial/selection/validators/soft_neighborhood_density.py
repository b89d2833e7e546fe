"""Density of the target's predictions: images with many neighbors of similar predictions (SND).

Let `f_i` be the L2-normalized probabilities of image i and `P_ij` the softmax over `j != i` of
`f_i . f_j / 0.05`. The score is the mean over i of the entropy of `P_i`, high in dense
neighborhoods. Saito, Kim, Teterwak, Sclaroff, Darrell and Saenko, "Tune it the Right Way:
Unsupervised Validation of Domain Adaptation via Soft Neighborhood Density", 2021,
https://arxiv.org/abs/2108.10860

It is highest if all predictions are equal, so collapsed predictions mislead it.
"""

import numpy as np
from scipy.special import entr, softmax

from dial.errors import DialError
from dial.selection.outputs import Outputs
from dial.selection.validators.interface import Validator

_TEMPERATURE = 0.05
_ROWS = 500  # at a time, to keep the memory small


class SoftNeighborhoodDensity(Validator):
    """Mean entropy of the similarities between predictions."""

    def score(self, outputs: Outputs) -> float:
        """Returns the mean entropy in nats, at most `log(N - 1)`."""
        vectors = softmax(outputs.target.logits.astype(np.float64), axis=1)
        count = len(vectors)
        if count < 2:  # noqa: PLR2004 - an image and a neighbor
            raise DialError(wanted="two target images or more", got=str(count), fix="add images")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        total = 0.0
        for start in range(0, count, _ROWS):
            similarity = vectors[start : start + _ROWS] @ vectors.T / _TEMPERATURE
            rows = np.arange(len(similarity))
            similarity[rows, start + rows] = -np.inf
            total += float(entr(softmax(similarity, axis=1)).sum())
        return total / count


create = SoftNeighborhoodDensity
