"""The interface of an estimator of accuracy."""

from abc import ABC, abstractmethod

from dial.selection.outputs import Outputs


class Estimator(ABC):
    """Estimates a run's accuracy on the target by its outputs, without labels of the target."""

    def lacks(self, outputs: Outputs) -> str:
        """Returns why these outputs do not suffice, or nothing if they do.

        By default an estimator needs source images that were held out of training.
        """
        if outputs.training is None:
            return "there are no source images to compare with"
        return "" if outputs.held_out else "no part of the source was held out of training"

    @abstractmethod
    def estimate(self, outputs: Outputs) -> float:
        """Returns the estimated fraction of target images that are predicted correctly.

        Args:
            outputs: of the run, with nothing lacking; all its images have logits and features.
        """
