"""Layers with a prior, their oracles' arguments, and passes with gradients."""

from typing import Any

import torch
from torch import Tensor, nn

from dial import DomainAlignment
from dial.references import Reference
from tests import oracles

SHAPES = [(16, 5), (8, 5, 7), (6, 5, 4, 3), (4, 5, 3, 2, 2)]


def small_layer(
    channels: int = 5, reference: str | Reference = "anchored", **options: Any
) -> DomainAlignment:
    """A layer with a prior, as `convert` makes it from a pretrained BatchNorm."""
    layer = DomainAlignment(channels, reference=reference, **options)
    if layer.reference.uses_prior():
        layer.prior_location = torch.linspace(-1, 1, channels)
        layer.prior_spread = torch.linspace(0.5, 2, channels)
    return layer


def prior_of(layer: DomainAlignment) -> tuple[oracles.Array, oracles.Array] | None:
    if layer.prior is None:
        return None
    location, spread = layer.prior
    return location.double().numpy(), spread.double().numpy()


def with_gradients(layer: nn.Module, x: Tensor, g: Tensor) -> list[Tensor]:
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], g)]
