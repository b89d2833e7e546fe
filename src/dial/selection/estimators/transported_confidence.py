"""Confidence by optimal transport of the target's predictions to the source's labels (COT).

Each target image is matched with one label, drawn by the class shares of the source, such that the
sum of the distances between its probabilities and the labels (half of the L1 norm) is smallest.
The estimate is 1 less the mean distance. Lu, Wang, Zhai, Kong and Tai, "Characterizing
Out-of-Distribution Error via Optimal Transport", NeurIPS 2023, https://arxiv.org/abs/2305.15640

It assumes that the target has the class shares of the source. At most 1,000 images are matched.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment

from dial.selection.estimators._confidence import find_temperature, probabilities
from dial.selection.estimators.interface import Estimator
from dial.selection.outputs import Outputs

_MATCHED = 1000


class TransportedConfidence(Estimator):
    """Confidence by optimal transport."""

    def estimate(self, outputs: Outputs) -> float:
        """Returns 1 less the mean distance."""
        held_out = outputs.require_held_out()
        temperature = find_temperature(held_out.logits, held_out.labels)
        shares = probabilities(outputs.target.logits[:_MATCHED], temperature)
        known = np.sort(outputs.training.labels if outputs.training else held_out.labels)
        places = (np.arange(len(shares)) + 0.5) / len(shares) * len(known)
        labels = known[places.astype(int)]  # as many as images, with the same shares
        distances = 1 - shares[:, labels]
        return float(1 - distances[linear_sum_assignment(distances)].mean())


create = TransportedConfidence
