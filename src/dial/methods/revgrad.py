"""ReverseGrad (Ganin and Lempitsky 2015): features that a domain classifier cannot tell apart."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.methods.interface import PlainMethod, Terms, both, cross_entropy


class _Reverse(torch.autograd.Function):
    """The identity, whose gradient is multiplied by `-factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * g, None


@dataclass(frozen=True, kw_only=True)
class RevGrad(PlainMethod):
    """Domain-adversarial training by gradient reversal, <https://arxiv.org/abs/1409.7495>.

    A discriminator 1024-1024-1 on the last hidden features learns to tell the domains apart. Its
    gradient reaches the network with the sign reversed, times a factor that grows from 0 to 1:
    `2 / (1 + exp(-10 progress)) - 1`.
    """

    weight: float = 0.1
    """Weight of the domain loss."""

    def extra_modules(self, backbone: Backbone) -> nn.Module:
        """Returns the discriminator."""
        layers: list[nn.Module] = []
        for size in (backbone.num_features, 1024):
            layers += [nn.Linear(size, 1024), nn.ReLU(), nn.Dropout(0.5)]
        return nn.Sequential(*layers, nn.Linear(1024, 1))

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """Yields the cross-entropy of the source and the domain loss, from one pass."""
        source, target = both(trainee, batch)
        sizes = [len(source.features), len(target.features)]
        factor = 2 / (1 + math.exp(-10 * progress)) - 1
        features = _Reverse.apply(torch.cat([source.features, target.features]), factor)
        logits = trainee.get_submodule("extra")(features).squeeze(1).float()
        is_source = torch.zeros_like(logits)
        is_source[: sizes[0]] = 1
        domain_losses = binary_cross_entropy_with_logits(logits, is_source, reduction="none")
        # The mean of each domain's mean: sub-batches of unequal sizes count the same.
        of_source, of_target = (part.mean() for part in domain_losses.split(sizes))
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "domain": self.weight * ((of_source + of_target) / 2),
        }


create = RevGrad
