"""The support of predictions by the nearest source images, in features from before training.

The features are those of the pretrained network that training began from. Training has not moved
them, but they know nothing of the target: where the domains are far apart, the estimate is too low.
"""

from dial.selection.estimators._support import relative_support
from dial.selection.estimators.interface import Estimator
from dial.selection.outputs import Outputs

_SCRATCH = "a network trained from scratch has only its own features, which share its mistakes"


class FormerNeighbors(Estimator):
    """Relative support in the features of the pretrained network."""

    def lacks(self, outputs: Outputs) -> str:
        """Returns whether there are no such features."""
        if outputs.training is None:
            return "there are no source images to compare with"
        return "" if outputs.before is not None else _SCRATCH

    def estimate(self, outputs: Outputs) -> float:
        """Returns the support, as a part of that of the source images among each other."""
        assert outputs.before is not None  # noqa: S101 - nothing is lacking
        return relative_support(outputs.before, outputs.target.logits)


create = FormerNeighbors
