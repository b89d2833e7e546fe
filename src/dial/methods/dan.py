"""DAN (Long et al. 2015): multi-kernel MMD at the last hidden layer and at the logits."""

from dataclasses import dataclass

from torch import Tensor

from dial import losses
from dial.methods.ddc import DDC
from dial.methods.interface import Output


@dataclass(frozen=True, kw_only=True)
class DAN(DDC):
    """Deep adaptation network, <https://arxiv.org/abs/1502.02791>.

    `cross_entropy(source) + weight * (mmd(features) + mmd(logits))`, each with five Gaussian
    kernels.
    """

    weight: float = 1.0
    """Weight of the discrepancy."""

    def distance(self, source: Output, target: Output) -> Tensor:
        """Returns the sum of both layers' discrepancies."""
        features = losses.mmd(source.features, target.features)
        return features + losses.mmd(source.logits, target.logits)


create = DAN
