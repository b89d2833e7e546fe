"""ReverseGrad (Ganin and Lempitsky 2015): features that a domain classifier cannot tell apart."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.methods._adversary import discriminator, domain_loss, reversal_factor, reverse
from dial.methods.interface import PlainMethod, Terms, both, cross_entropy


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
        return discriminator(backbone.num_features)

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """Yields the cross-entropy of the source and the domain loss, from one pass."""
        source, target = both(trainee, batch)
        features = torch.cat([source.features, target.features])
        logits = trainee.get_submodule("extra")(reverse(features, reversal_factor(progress)))
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "domain": self.weight * domain_loss(logits, len(source.features)),
        }


create = RevGrad
