"""What adversarial methods share: the reversal of gradients, the domain classifier, its loss."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

HIDDEN = 1024


def reversal_factor(progress: float) -> float:
    """Returns the factor on the reversed gradient, which grows from 0 to 1 (Ganin et al.).

    >>> reversal_factor(0.0), round(reversal_factor(0.1), 3), round(reversal_factor(1.0), 3)
    (0.0, 0.462, 1.0)
    """
    return 2 / (1 + math.exp(-10 * progress)) - 1


def reverse(x: Tensor, factor: float) -> Tensor:
    """Returns `x`; its gradient is multiplied by `-factor`."""
    return _Reverse.apply(x, factor)  # type: ignore[no-any-return]


def discriminator(num_inputs: int) -> nn.Sequential:
    """Returns a domain classifier 1024-1024-1 with dropout, `(N, num_inputs)` to `(N, 1)`."""
    layers: list[nn.Module] = []
    for size in (num_inputs, HIDDEN):
        layers += [nn.Linear(size, HIDDEN), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, 1))


def domain_loss(logits: Tensor, sources: int, weights: Tensor | None = None) -> Tensor:
    """Returns the binary cross-entropy of a domain classifier, in float32.

    It is the mean of each domain's mean: sub-batches of unequal sizes count the same.

    Args:
        logits: `(N + M, 1)`, of source images and then of target images.
        sources: `N`.
        weights: `(N + M,)`, for weighted means. No gradient goes through their sums.
    """
    logits = logits.squeeze(1).float()
    is_source = torch.zeros_like(logits)
    is_source[:sources] = 1
    losses = binary_cross_entropy_with_logits(logits, is_source, reduction="none")
    weights = torch.ones_like(losses) if weights is None else weights
    of_domains = [
        (weight * loss).sum() / weight.sum().detach()
        for weight, loss in zip(_domains(weights, sources), _domains(losses, sources), strict=True)
    ]
    return torch.stack(of_domains).mean()


def _domains(x: Tensor, sources: int) -> tuple[Tensor, Tensor]:
    return x[:sources], x[sources:]


class _Reverse(torch.autograd.Function):
    """The identity, whose gradient is multiplied by `-factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * g, None
