"""DAN (Long et al. 2015): multi-kernel MMD at the last hidden layer and the logits."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dial import losses
from dial.data.batches import Batch
from dial.methods.interface import PlainMethod, Terms, both, cross_entropy


@dataclass(frozen=True, kw_only=True)
class DAN(PlainMethod):
    """Maximum mean discrepancy with five Gaussian kernels, at two layers."""

    weight: float = 1.0
    """Weight of the discrepancy."""

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Both terms of one pass."""
        source, target = both(trainee, batch)
        distance = losses.mmd(source.features, target.features)
        distance = distance + losses.mmd(source.logits, target.logits)
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "discrepancy": self.weight * distance,
        }


METHOD = DAN
