"""Entropy only: source cross-entropy and target entropy on a network without DA-layers."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dial import losses
from dial.data.batches import Batch
from dial.methods.interface import PlainMethod, Terms, both, cross_entropy, warmup_factor


@dataclass(frozen=True, kw_only=True)
class EntropyOnly(PlainMethod):
    """Entropy minimization (Grandvalet and Bengio, NIPS 2004) by itself; it can hurt.

    `cross_entropy(source) + entropy * entropy(target)`, the ablation of DIAL without DA-layers.
    """

    entropy: float = 0.2
    """Weight of the target's entropy."""
    warmup: float = 0.0
    """Fraction of the training over which the entropy's weight grows linearly from 0."""
    delay: float = 0.0
    """Fraction of the training before the entropy's weight begins to grow."""

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """Yields the cross-entropy of the source and the target's entropy, from one pass."""
        source, target = both(trainee, batch)
        weight = warmup_factor(progress, self.warmup, self.delay) * self.entropy
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "entropy": weight * losses.entropy(target.logits),
        }


create = EntropyOnly
