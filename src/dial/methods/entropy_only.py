"""Entropy only: source cross-entropy and target entropy on a network without DA-layers."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dial import losses
from dial.data.batches import Batch
from dial.methods._interface import PlainMethod, Terms, both, cross_entropy


@dataclass(frozen=True, kw_only=True)
class EntropyOnly(PlainMethod):
    """What the entropy loss does by itself; the paper finds that it can hurt."""

    entropy: float = 0.2
    """Weight of the target's entropy."""

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Both terms of one pass."""
        source, target = both(trainee, batch)
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "entropy": self.entropy * losses.entropy(target.logits),
        }


METHOD = EntropyOnly
