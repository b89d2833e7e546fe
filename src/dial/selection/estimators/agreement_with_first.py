"""The share of target images on which the finished predictor agrees with the one before training.

The predictor from before training is a head on the network as it came. Its mistakes differ from
those of the trained network, so where both agree they are mostly right. Baek, Jiang, Raghunathan
and Kolter, "Agreement-on-the-Line", NeurIPS 2022, https://arxiv.org/abs/2206.13089
"""

from dial.selection.estimators.interface import Estimator
from dial.selection.outputs import Outputs


class AgreementWithFirst(Estimator):
    """Agreement of the predictors from before and after training."""

    def lacks(self, outputs: Outputs) -> str:
        """Returns whether there was no other predictor."""
        return "" if outputs.first is not None else "there was no predictor before training"

    def estimate(self, outputs: Outputs) -> float:
        """Returns the share of images on which both agree."""
        assert outputs.first is not None  # noqa: S101 - nothing is lacking
        predicted = outputs.target.logits.argmax(1)
        return float((predicted == outputs.first[: len(predicted)]).mean())


create = AgreementWithFirst
