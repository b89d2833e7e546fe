"""Entropy only: source cross-entropy and target entropy on a network without DA-layers."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dial import losses
from dial.data.batches import Batch
from dial.methods.interface import PlainMethod, Terms, both, cross_entropy, grown


@dataclass(frozen=True, kw_only=True)
class EntropyOnly(PlainMethod):
    """What the entropy loss does by itself; the paper finds that it can hurt."""

    entropy: float = 0.2
    """Weight of the target's entropy."""
    warmup: float = 0.0
    """Share of the training over which the entropy's weight grows from nothing to its value."""

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """Both terms of one pass."""
        source, target = both(trainee, batch)
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "entropy": grown(progress, self.warmup) * self.entropy * losses.entropy(target.logits),
        }


METHOD = EntropyOnly
