"""Source only: cross-entropy on the labelled images; the target is not used."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dial.data.batches import Batch
from dial.methods.interface import PlainMethod, Terms, cross_entropy


@dataclass(frozen=True, kw_only=True)
class SourceOnly(PlainMethod):
    """The baseline that adaptation has to beat."""

    needs_target = False
    adapts = False

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Yields the cross-entropy of the source."""
        yield {"cross_entropy": cross_entropy(trainee(batch.source), batch.labels)}


create = SourceOnly
