"""DDC (Tzeng et al. 2014): the means of both domains' last hidden features drawn together."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dial import losses
from dial.data.batches import Batch
from dial.methods.interface import PlainMethod, Terms, both, cross_entropy


@dataclass(frozen=True, kw_only=True)
class DDC(PlainMethod):
    """Maximum mean discrepancy with a linear kernel, at the last hidden layer."""

    weight: float = 0.25
    """Weight of the discrepancy."""

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Both terms of one pass."""
        source, target = both(trainee, batch)
        distance = losses.mean_distance(source.features, target.features)
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "discrepancy": self.weight * distance,
        }


METHOD = DDC
