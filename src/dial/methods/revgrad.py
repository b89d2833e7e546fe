"""ReverseGrad (Ganin and Lempitsky 2015): features that a domain classifier cannot tell apart."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.methods.interface import PlainMethod, Terms, both, cross_entropy


class _Reverse(torch.autograd.Function):
    """The identity, whose gradient comes back with the opposite sign and a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * g, None


@dataclass(frozen=True, kw_only=True)
class RevGrad(PlainMethod):
    """A discriminator 1024-1024-1 behind a gradient reversal, at the last hidden layer."""

    weight: float = 0.1
    """Weight of the domain loss."""

    def beside(self, backbone: Backbone) -> nn.Module:
        """The discriminator."""
        return nn.Sequential(
            nn.Linear(backbone.num_features, 1024),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(1024, 1024),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(1024, 1),
        )

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """Both terms of one pass; the reversal grows from 0 to 1 with the progress."""
        source, target = both(trainee, batch)
        reversal = 2 / (1 + math.exp(-10 * progress)) - 1
        features = torch.cat([source.features, target.features])
        features = _Reverse.apply(features, reversal)
        guesses = trainee.get_submodule("extra")(features).squeeze(1).float()
        truth = torch.zeros_like(guesses)
        truth[: len(source.features)] = 1
        of_source, of_target = torch.nn.functional.binary_cross_entropy_with_logits(
            guesses, truth, reduction="none"
        ).split([len(source.features), len(target.features)])
        # Each domain counts the same, whatever the sub-batches.
        domain = (of_source.mean() + of_target.mean()) / 2
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "domain": self.weight * domain,
        }


METHOD = RevGrad
