"""CDAN (Long et al. 2018): a domain classifier of features and predictions taken together."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.methods._adversary import discriminator, domain_loss, reversal_factor, reverse
from dial.methods.interface import PlainMethod, Terms, both, cross_entropy

LARGEST = 4096
"""The largest size of the outer product; the randomized map takes the place of larger ones."""
RANDOMIZED = 1024
"""The size of the randomized map."""


class OuterProduct(nn.Module):
    """The multilinear map: each feature times each probability, `(N, D K)`."""

    def forward(self, features: Tensor, predictions: Tensor) -> Tensor:
        """Returns the map of features `(N, D)` and predictions `(N, K)`."""
        return (features[:, :, None] * predictions[:, None]).flatten(1)


class RandomizedMap(nn.Module):
    """The randomized multilinear map `(f R_f) * (p R_p) / sqrt(1024)`, `(N, 1024)`.

    The Gaussian matrices are drawn once and are part of checkpoints. Products of two such maps
    are those of outer products in the mean.
    """

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.of_features: Tensor
        self.of_predictions: Tensor
        self.register_buffer("of_features", torch.randn(num_features, RANDOMIZED))
        self.register_buffer("of_predictions", torch.randn(num_classes, RANDOMIZED))

    def forward(self, features: Tensor, predictions: Tensor) -> Tensor:
        """Returns the map of features `(N, D)` and predictions `(N, K)`."""
        product = (features @ self.of_features) * (predictions @ self.of_predictions)
        return product / math.sqrt(RANDOMIZED)


class ConditionalDiscriminator(nn.Module):
    """A discriminator on the multilinear map of features and predictions."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        size = num_features * num_classes
        small = size <= LARGEST
        self.map = OuterProduct() if small else RandomizedMap(num_features, num_classes)
        self.classifier = discriminator(size if small else RANDOMIZED)

    def forward(self, features: Tensor, predictions: Tensor) -> Tensor:
        """Returns the domain's logits `(N, 1)` of features `(N, D)` and predictions `(N, K)`."""
        return self.classifier(self.map(features, predictions))  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class CDAN(PlainMethod):
    """Conditional adversarial training by gradient reversal, <https://arxiv.org/abs/1705.10667>.

    A discriminator 1024-1024-1 on the product of features `f` and predictions `p = softmax`
    learns to tell the domains apart. Its gradient reaches the features with the sign reversed,
    times a factor that grows from 0 to 1; none reaches `p` in the product. With entropy
    conditioning (CDAN+E) an image's weight in its domain is `1 + exp(-entropy(p))`, whose
    gradient is reversed too, as in the authors' code.
    """

    weight: float = 1.0
    """Weight of the adaptation loss."""
    entropy_conditioning: bool = True
    """Give images with sure predictions a larger weight in the domain loss."""

    def extra_modules(self, backbone: Backbone) -> nn.Module:
        """Returns the discriminator with its map."""
        return ConditionalDiscriminator(backbone.num_features, backbone.num_classes)

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """Yields the cross-entropy of the source and the domain loss, from one pass."""
        source, target = both(trainee, batch)
        factor = reversal_factor(progress)
        features = reverse(torch.cat([source.features, target.features]), factor)
        log_p = torch.log_softmax(torch.cat([source.logits, target.logits]).float(), dim=1)
        p = log_p.exp()
        logits = trainee.get_submodule("extra")(features, p.detach())
        weights = None
        if self.entropy_conditioning:
            entropy = -(p * log_p).sum(dim=1)
            weights = 1 + torch.exp(-reverse(entropy, factor))
        yield {
            "cross_entropy": cross_entropy(source, batch.labels),
            "domain": self.weight * domain_loss(logits, len(source.features), weights),
        }


create = CDAN
