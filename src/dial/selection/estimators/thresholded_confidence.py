"""The share of target images above a threshold of confidence that fits the held-out source (ATC).

The threshold is such that the fraction of held-out source images above it equals their accuracy;
confidence is the negative entropy of the predictions. Garg, Balakrishnan, Lipton, Neyshabur and
Sedghi, "Leveraging Unlabeled Data to Predict Out-of-Distribution Performance", ICLR 2022,
https://arxiv.org/abs/2201.04234

It assumes that confidence means the same on both domains. Minimizing the target's entropy makes a
network confident on the target whether it is right or not.
"""

from dial.selection.estimators._confidence import share_above_threshold
from dial.selection.estimators.interface import Estimator
from dial.selection.outputs import Outputs


class ThresholdedConfidence(Estimator):
    """Average thresholded confidence."""

    def estimate(self, outputs: Outputs) -> float:
        """Returns the share of target images above the threshold."""
        return share_above_threshold(outputs.require_held_out(), outputs.target, temperature=1.0)


create = ThresholdedConfidence
