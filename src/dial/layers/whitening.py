"""What `fold` does first where a reference mixes channels: it takes the matrix out of DA-layers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dial.errors import DialError
from dial.layers.alignment import DomainAlignment
from dial.layers.conversion import replace_modules
from dial.references import Normal, Statistics, inverse_root, multiply

_CONVOLUTIONS: dict[int, Any] = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}


@torch.no_grad()
def take_out_matrices(
    model: nn.Module, domain: str, sources: Mapping[DomainAlignment, nn.Module]
) -> nn.Module:
    """Write DA-layers that mix channels as a matrix and a DA-layer that does not, in place.

    `s^-1 (x - b)` is `A x - A b` with `A = s^-1`. The matrix `A` is multiplied into the layer
    before, if its outputs may be mixed, so that the architecture stays the same. Otherwise it
    becomes a 1x1 convolution, or a linear layer for `(N, C)`, in a `Sequential` with the DA-layer.

    Args:
        model: a network of DA-layers; those with other references are left alone.
        domain: the domain whose statistics to use; those of other domains lose their meaning.
        sources: the layer before each DA-layer, where it may be changed.

    Returns:
        The network.

    Raises:
        DialError: a layer of which nobody knows how many dimensions its input has.
    """
    replacements: dict[nn.Module, nn.Module] = {}
    for layer, (location, square) in _matrices(model, domain).items():
        rows = inverse_root(square)
        ones = torch.ones_like(location)
        layer.reference = Normal(eps=0.0)
        layer.spread = torch.ones_like(layer.location)  # type: ignore[arg-type]
        layer.set_statistics(domain, Statistics(_product(rows, location), ones))
        source = sources.get(layer)
        if source is None or not _mix(source, rows):
            inserted = _matrix_layer(layer, rows)
            replacements[layer] = nn.Sequential(inserted, layer).train(layer.training)
    return replace_modules(model, replacements)


@torch.no_grad()
def merge_matrix_into_next(layer: DomainAlignment, following: Any, domain: str) -> None:
    """Multiply a DA-layer that mixes channels into the layer after it; it becomes the identity.

    `W (w A (x - b) + c) + d` is `(W w A) x + (W (c - w A b) + d)`.
    """
    matrices = _matrices(layer, domain)
    if layer not in matrices:
        return
    location, square = matrices[layer]
    rows, (weight, bias) = inverse_root(square), layer.affine_of(domain)
    if weight is not None:
        rows = weight.double()[:, None] * rows
    shift = -_product(rows, location) + (0 if bias is None else bias.double())
    matrix = multiply(rows, torch.eye(len(rows), dtype=rows.dtype, device=rows.device))
    former = following.weight.double()
    offset = former.flatten(2).sum(2) @ shift if former.dim() > 2 else former @ shift  # noqa: PLR2004
    if following.bias is not None:
        offset = offset + following.bias.double()
    mixed = torch.einsum("oi...,ij->oj...", former, matrix)
    for name, value in (("weight", mixed), ("bias", offset)):
        like = following.weight
        setattr(following, name, nn.Parameter(value.to(like.dtype), like.requires_grad))
    layer.reference, layer.weight, layer.bias = Normal(eps=0.0), None, None
    layer.spread = torch.ones_like(layer.location)  # type: ignore[arg-type]
    layer.location = torch.zeros_like(layer.location)  # type: ignore[arg-type]


def has_matrix(layer: DomainAlignment, domain: str) -> bool:
    """Whether the scale of a DA-layer is a matrix."""
    return bool(_matrices(layer, domain))


def mixes_channels(model: nn.Module, domain: str) -> bool:
    """Whether some DA-layer of the network has a matrix for its scale."""
    return bool(_matrices(model, domain))


def _matrices(model: nn.Module, domain: str) -> dict[DomainAlignment, tuple[Tensor, Tensor]]:
    """Returns the transformation of each DA-layer that mixes channels, in float64."""
    found = {}
    for layer in model.modules():
        statistics = layer.statistics(domain) if isinstance(layer, DomainAlignment) else None
        if isinstance(layer, DomainAlignment) and statistics is not None:
            location, square = layer.reference.transform(statistics, layer.prior)
            if square.dim() > 1:
                found[layer] = location.double(), square.double()
    return found


def _mix(source: Any, rows: Tensor) -> bool:
    """Multiply the matrix into a layer; returns False if its groups of channels are smaller."""
    groups = getattr(source, "groups", 1)
    if groups > 1 and (len(rows) // groups) % rows.shape[1]:
        return False
    for name in ("weight", "bias"):
        former = getattr(source, name)
        if former is not None:  # a new parameter, as this one may be tied to another layer's
            mixed = torch.empty_like(former).copy_(_product(rows, former.double()))
            setattr(source, name, nn.Parameter(mixed, former.requires_grad))
    return True


def _product(rows: Tensor, values: Tensor) -> Tensor:
    """Returns the product of the matrix with `(C, *)` values."""
    return multiply(rows, values.reshape(len(values), -1)).view(values.shape)


def _matrix_layer(layer: DomainAlignment, rows: Tensor) -> nn.Module:
    """Returns the matrix as a layer without a bias."""
    channels, group = rows.shape
    rank = layer.input_rank
    if rank is None:
        raise DialError(
            wanted=f"to know whether {layer.description()} becomes a linear layer or a convolution",
            got="a DA-layer that has not had a batch",
            fix="run one batch through the network before folding it",
        )
    like: Any = {"dtype": layer.location.dtype, "device": rows.device}  # type: ignore[union-attr]
    groups = channels // group if channels % group == 0 and rank in _CONVOLUTIONS else 1
    if groups == 1:
        rows = multiply(rows, torch.eye(channels, dtype=rows.dtype, device=rows.device))
    if rank in _CONVOLUTIONS:
        inserted = _CONVOLUTIONS[rank](channels, channels, 1, groups=groups, bias=False, **like)
    else:
        inserted = nn.Linear(channels, channels, bias=False, **like)
    inserted.weight.copy_(rows.view(inserted.weight.shape))
    inserted.requires_grad_(layer.weight is not None and layer.weight.requires_grad)
    return inserted  # type: ignore[no-any-return]
