"""The accuracy on the held-out source less what the target loses in confidence (DoC).

Confidence is the mean of the largest probabilities, after temperature scaling on the held-out
images. Guillory, Shankar, Ebrahimi, Darrell and Schmidt, "Predicting with Confidence on Unseen
Distributions", ICCV 2021, https://arxiv.org/abs/2107.03315. Departure: the difference of
confidences is taken as it is; the paper fits a regression to it on shifts with known labels.
"""

import numpy as np

from dial.selection.estimators._confidence import find_temperature, probabilities
from dial.selection.estimators.interface import Estimator
from dial.selection.outputs import Outputs


class DifferenceOfConfidences(Estimator):
    """Accuracy on the held-out source, less the difference of confidences."""

    def estimate(self, outputs: Outputs) -> float:
        """Returns the difference, cut to a share."""
        held_out = outputs.require_held_out()
        temperature = find_temperature(held_out.logits, held_out.labels)
        known, asked = (
            probabilities(each.logits, temperature).max(1).mean()
            for each in (held_out, outputs.target)
        )
        return float(np.clip(held_out.correct().mean() - (known - asked), 0, 1))


create = DifferenceOfConfidences
