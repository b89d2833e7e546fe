"""DDC (Tzeng et al. 2014): the distance of both domains' means at the last hidden layer."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from dial import losses
from dial.data.batches import Batch
from dial.methods.interface import Output, PlainMethod, Terms, both, cross_entropy


@dataclass(frozen=True, kw_only=True)
class DDC(PlainMethod):
    """Deep domain confusion, <https://arxiv.org/abs/1412.3474>.

    `cross_entropy(source) + weight * |mean(source features) - mean(target features)|^2`: MMD with
    a linear kernel.
    """

    weight: float = 0.25
    """Weight of the discrepancy."""

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Yields the cross-entropy of the source and the discrepancy, from one pass."""
        source, target = both(trainee, batch)
        discrepancy = self.weight * self.distance(source, target)
        yield {"cross_entropy": cross_entropy(source, batch.labels), "discrepancy": discrepancy}

    def distance(self, source: Output, target: Output) -> Tensor:
        """Returns the squared distance of the features' means."""
        return losses.mean_distance(source.features, target.features)


create = DDC
