"""The support of predictions by the nearest source images, in the finished network's features.

Source images that were held out of training tell how much support correct predictions have.
Training on pseudo-labels pulls target images to what is predicted for them, right or wrong, so the
estimate tends to be too high if many are wrong.
"""

import torch

from dial.selection.estimators._support import relative_support
from dial.selection.estimators.interface import Estimator
from dial.selection.neighborhood import look_around
from dial.selection.outputs import Outputs


class Neighbors(Estimator):
    """Relative support in the features of the finished network."""

    def estimate(self, outputs: Outputs) -> float:
        """Returns the support, as a part of that of held-out source images."""
        training, held_out = outputs.training, outputs.require_held_out()
        assert training is not None  # noqa: S101 - the images were held out of it
        parts = training.features, training.labels, outputs.target.features
        asking = torch.from_numpy(held_out.features), torch.from_numpy(held_out.labels)
        around = look_around(*map(torch.from_numpy, parts), asking=asking)
        return relative_support(around, outputs.target.logits)


create = Neighbors
