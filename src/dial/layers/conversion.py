"""`convert`: DA-layers in place of a network's BatchNorms, and after layers by name."""

import difflib
import sys
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from dial import references
from dial.errors import DialError
from dial.layers.alignment import DomainAlignment, DomainAlignmentAct
from dial.layers.context import DomainSpecific
from dial.references import Reference

_INPUT_RANKS = {nn.BatchNorm1d: 2, nn.BatchNorm2d: 4, nn.BatchNorm3d: 5}
_PLAIN_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward)


class Appended(nn.Sequential):
    """A layer and the DA-layer that `convert` appended to it."""


def convert(
    model: nn.Module,
    reference: str | Reference = "normal",
    domains: Sequence[str] = ("source", "target"),
    append_after: Collection[str] = (),
) -> nn.Module:
    """Replace every BatchNorm of a network by a DA-layer, in place, and return the network.

    Parameters stay the same objects, so an existing optimizer keeps working. Every domain starts
    from the BatchNorm's statistics, and the network's output in eval mode does not change: where a
    reference measures spread differently (Epsilon, Laplace), the shared affine absorbs the
    difference. References given by name keep each BatchNorm's `eps`.

    Args:
        model: any network; layers used in several places stay shared.
        reference: the reference distribution, by name or as an object.
        domains: the names of the domains.
        append_after: names of linear or convolutional layers after which a new DA-layer
            (weight 1, bias 0) is inserted.

    Raises:
        DialError: nothing to convert, an unknown name in `append_after`, or a BatchNorm subclass
            with another forward pass.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 5))
    >>> model = convert(model, append_after=["3"])
    >>> [type(layer).__name__ for layer in model]
    ['Conv2d', 'DomainAlignment', 'Flatten', 'Appended']
    """
    norms = {n: m for n, m in model.named_modules() if isinstance(m, _BatchNorm)}
    _check_request(model, norms, append_after)
    replacements: dict[nn.Module, nn.Module] = {}
    for name, norm in norms.items():
        replacements[norm] = _alignment_for(norm, name, reference=reference, domains=domains)
    for name in append_after:
        layer = model.get_submodule(name)
        replacements[layer] = _appended(layer, name, reference=reference, domains=domains)
    return replace_modules(model, replacements)


def replace_modules(model: nn.Module, replacements: dict[nn.Module, nn.Module]) -> nn.Module:
    """Replace modules wherever they are used; returns the new root."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in replacements:
                parent._modules[name] = replacements[child]
    return replacements.get(model, model)


def timm_fused_norms() -> tuple[type[_BatchNorm], ...]:
    """Returns timm's BatchNorms with an activation inside; none if timm was never imported."""
    module = sys.modules.get("timm.layers.norm_act")
    return (module.BatchNormAct2d, module.SyncBatchNormAct) if module else ()


def _check_request(
    model: nn.Module, norms: dict[str, _BatchNorm], append_after: Collection[str]
) -> None:
    names = [name for name, _ in model.named_modules() if name]
    if isinstance(append_after, str):
        raise DialError(
            wanted="a collection of layer names in append_after",
            got=f"the string {append_after!r}",
            fix=f"append_after=[{append_after!r}]",
        )
    for name in append_after:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=3) or names[-3:]
            raise DialError(
                wanted="the name of a layer in append_after",
                got=f"{name!r}, which {type(model).__name__} does not have",
                fix=f"take a name of model.named_modules(), such as {', '.join(close)}",
            )
    if not norms and not append_after:
        converted = any(isinstance(module, DomainSpecific) for module in model.modules())
        raise DialError(
            wanted="a network with BatchNorm layers",
            got=f"a {type(model).__name__} " + ("converted before" if converted else "without any"),
            fix="name the layers that get a DA-layer with append_after=[...]",
        )


def _alignment_for(
    norm: _BatchNorm, name: str, *, reference: str | Reference, domains: Sequence[str]
) -> DomainAlignment:
    """Returns the DA-layer that replaces a BatchNorm, with its parameters and statistics."""
    fused = isinstance(norm, timm_fused_norms())
    if isinstance(norm, LazyModuleMixin) and norm.has_uninitialized_params():
        raise DialError(
            wanted="BatchNorms that know their number of channels",
            got=f"'{name}', a lazy one without parameters",
            fix="run one batch through the network before converting it",
        )
    if not fused and type(norm).forward not in _PLAIN_FORWARDS:
        raise DialError(
            wanted="torch's or timm's BatchNorm layers",
            got=f"'{name}', a {type(norm).__name__} with a forward pass of its own",
            fix="replace it by a torch BatchNorm, or by a dial.DomainAlignment yourself",
        )
    settings: dict[str, Any] = {
        "domains": domains,
        "reference": references.resolve(reference, eps=norm.eps),
        "affine": False,
        "momentum": norm.momentum,
    }
    layer = DomainAlignment(norm.num_features, **settings)
    if fused:
        settings |= {"drop": norm.drop, "act": norm.act}
        layer = DomainAlignmentAct(norm.num_features, **settings)
    layer.name, layer.training, layer.norm_eps = name, norm.training, norm.eps
    layer.input_rank = next((r for k, r in _INPUT_RANKS.items() if isinstance(norm, k)), None)
    layer.weight, layer.bias = norm.weight, norm.bias
    _copy_statistics(norm, layer)
    return layer


@torch.no_grad()
def _copy_statistics(norm: _BatchNorm, layer: DomainAlignment) -> None:
    mean, var = norm.running_mean, norm.running_var
    if mean is None or var is None:
        layer.location = layer.spread = None
        like = norm.weight if norm.weight is not None else layer.num_batches_tracked
        layer.num_batches_tracked = layer.num_batches_tracked.to(like.device)
        return
    statistics = layer.reference.from_moments(mean, var)
    copies = len(layer.domains)
    layer.location, layer.spread = (torch.stack([value] * copies) for value in statistics)
    tracked = norm.num_batches_tracked
    layer.num_batches_tracked = torch.as_tensor(tracked or 0, device=mean.device).repeat(copies)
    if layer.reference.uses_prior():
        layer.prior_location, layer.prior_spread = mean.clone(), var.clone()
    # The affine absorbs the difference between the reference's transformation and the norm's.
    location, square = layer.reference.transform(statistics, layer.prior)
    square = square if square.dim() == 1 else references.diagonal(square)  # it is diagonal
    deviation = torch.sqrt(var + norm.eps)
    ratio, shift = square.sqrt() / deviation, (location - mean) / deviation
    if bool((ratio == 1).all()) and bool((shift == 0).all()):
        return
    if layer.weight is None:
        layer.weight = nn.Parameter(torch.ones_like(ratio), requires_grad=False)
    if layer.bias is None:
        layer.bias = nn.Parameter(torch.zeros_like(ratio), requires_grad=False)
    layer.bias.add_(layer.weight * shift)
    layer.weight.mul_(ratio)


def _appended(
    layer: nn.Module, name: str, *, reference: str | Reference, domains: Sequence[str]
) -> Appended:
    features = getattr(layer, "out_features", getattr(layer, "out_channels", None))
    weight = getattr(layer, "weight", None)
    if not isinstance(features, int) or not isinstance(weight, torch.Tensor):
        raise DialError(
            wanted="linear or convolutional layers in append_after",
            got=f"'{name}', a {type(layer).__name__}",
            fix="name the layer whose output is to be aligned",
        )
    new = DomainAlignment(
        features, domains=domains, reference=reference, device=weight.device, dtype=weight.dtype
    )
    new.name, new.input_rank = f"{name}.1", weight.dim()
    return Appended(layer, new).train(layer.training)
