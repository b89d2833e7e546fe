"""MCC (Jin et al. 2020): minimum class confusion of the target's predictions."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dial import losses
from dial.data.batches import Batch
from dial.errors import DialError
from dial.methods.interface import PlainMethod, Terms, both, cross_entropy


@dataclass(frozen=True, kw_only=True)
class MCC(PlainMethod):
    """Minimum class confusion, <https://arxiv.org/abs/1912.03699>.

    `cross_entropy(source) + weight * class_confusion(target)`: the target's predictions at a
    temperature, pairs of classes that occur together in them, and no comparison of domains.
    """

    weight: float = 1.0
    """Weight of the class confusion."""
    temperature: float = 2.5
    """Temperature of the predictions in the class confusion."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature <= 0:
            raise DialError(
                wanted="a temperature above 0", got=str(self.temperature), fix="the paper's is 2.5"
            )

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Yields the source's cross-entropy and the target's class confusion, from one pass."""
        source, target = both(trainee, batch)
        confusion = losses.class_confusion(target.logits, self.temperature)
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "confusion": self.weight * confusion,
        }


create = MCC
