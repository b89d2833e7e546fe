"""The nuclear norm of the target's probabilities: confident and diverse predictions.

The norm of the `(N, K)` matrix is divided by its largest possible value, `sqrt(N min(N, K))`. Deng,
Suh, Gould and Zheng, "Confidence and Dispersity Speak: Characterizing Prediction Matrix for
Unsupervised Accuracy Estimation", ICML 2023, https://arxiv.org/abs/2302.01094. Departure: the norm
is taken as the estimate; the paper fits a regression to it on shifts with known labels.
"""

import numpy as np

from dial.selection.estimators._confidence import probabilities
from dial.selection.estimators.interface import Estimator
from dial.selection.outputs import Outputs


class NuclearNorm(Estimator):
    """The nuclear norm of the target's probabilities."""

    def lacks(self, outputs: Outputs) -> str:  # noqa: ARG002 - predictions are always there
        """Returns nothing: it needs no source."""
        return ""

    def estimate(self, outputs: Outputs) -> float:
        """Returns the norm as a part of the largest possible one."""
        shares = probabilities(outputs.target.logits)
        largest = np.sqrt(len(shares) * min(shares.shape))
        return float(np.linalg.norm(shares, "nuc") / largest)


create = NuclearNorm
