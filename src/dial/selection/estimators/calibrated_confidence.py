"""The share of target images above a threshold, as in ATC, after temperature scaling.

The temperature minimizes the cross-entropy of the held-out source images; it changes the order of
images by their entropy. Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural
Networks", ICML 2017, https://arxiv.org/abs/1706.04599
"""

from dial.selection.estimators._confidence import find_temperature, share_above_threshold
from dial.selection.estimators.interface import Estimator
from dial.selection.outputs import Outputs


class CalibratedConfidence(Estimator):
    """Average thresholded confidence, calibrated."""

    def estimate(self, outputs: Outputs) -> float:
        """Returns the share of target images above the threshold."""
        held_out = outputs.require_held_out()
        temperature = find_temperature(held_out.logits, held_out.labels)
        return share_above_threshold(held_out, outputs.target, temperature=temperature)


create = CalibratedConfidence
