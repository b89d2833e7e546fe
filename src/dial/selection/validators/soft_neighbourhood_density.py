"""Target images that have many neighbours with predictions like theirs (SND).

With `f_i` the L2-normalised probabilities of image i and `P_ij` the softmax over `j != i` of
`f_i . f_j / 0.05`, it is the mean over i of the entropy of `P_i`: high where images lie in dense
neighbourhoods. Saito, Kim, Teterwak, Sclaroff, Darrell and Saenko, "Tune it the Right Way:
Unsupervised Validation of Domain Adaptation via Soft Neighborhood Density", 2021,
https://arxiv.org/abs/2108.10860

It is highest where all predictions are the same: predictions that have collapsed fool it.
"""

import numpy as np

from dial.errors import DialError
from dial.selection.outputs import Outputs
from dial.selection.validators._probabilities import entropy, softmax

NEEDS_HELD_OUT = False
_TEMPERATURE = 0.05
_ROWS = 500  # at a time, to keep the memory small


def score(outputs: Outputs) -> float:
    """In nats, at most `log(N - 1)`."""
    vectors = softmax(outputs.target.logits)
    if len(vectors) < 2:  # noqa: PLR2004 - an image and a neighbour
        raise DialError(wanted="two target images or more", got=str(len(vectors)), fix="add images")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    total = 0.0
    for start in range(0, len(vectors), _ROWS):
        similarity = vectors[start : start + _ROWS] @ vectors.T / _TEMPERATURE
        rows = np.arange(len(similarity))
        similarity[rows, start + rows] = -np.inf
        total += float(entropy(softmax(similarity)).sum())
    return total / len(vectors)
