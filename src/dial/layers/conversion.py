"""`convert`: DA-layers in place of a network's BatchNorms, and around layers by name."""

import copy
import difflib
import sys
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from dial import references
from dial.errors import DialError
from dial.layers.alignment import DomainAlignment, DomainAlignmentAct, is_per_domain
from dial.layers.context import DomainSpecific
from dial.layers.mixing import Mixing, MixingLike
from dial.references import Reference

_INPUT_RANKS = {nn.BatchNorm1d: 2, nn.BatchNorm2d: 4, nn.BatchNorm3d: 5}
_PLAIN_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward)


class AlignedLayer(nn.Sequential):
    """A layer with the DA-layers that `convert` put before it, after it, or both.

    The channels of a linear layer are its last dimension: `(N, C)`, or `(N, *, C)` for tokens.
    """

    @property
    def layer(self) -> nn.Module:
        """The layer itself, also where it was converted more than once."""
        layer = next(module for module in self if not isinstance(module, DomainAlignment))
        return layer.layer if isinstance(layer, AlignedLayer) else layer

    @property
    def before(self) -> DomainAlignment | None:
        """The DA-layer before the layer, if there is one."""
        return self[0] if isinstance(self[0], DomainAlignment) else None

    @property
    def after(self) -> DomainAlignment | None:
        """The DA-layer after the layer, if there is one."""
        return self[-1] if isinstance(self[-1], DomainAlignment) else None

    def forward(self, x: Tensor) -> Tensor:
        """Returns the layer's output, with its input and output aligned."""
        for module in self:
            # `fold` traces the network without tensors.
            aligns = isinstance(module, DomainAlignment) and isinstance(x, Tensor)
            x = self._align(x, module) if aligns else module(x)
        return x

    def _align(self, x: Tensor, alignment: nn.Module) -> Tensor:
        if isinstance(self.layer, nn.Linear) and x.dim() > 2:  # noqa: PLR2004
            x = x.movedim(-1, 1).contiguous()  # kernels are slow on a view
            return alignment(x).movedim(1, -1)  # type: ignore[no-any-return]
        return alignment(x)  # type: ignore[no-any-return]


Appended = AlignedLayer  # the former name


def convert(
    model: nn.Module,
    reference: str | Reference = "normal",
    domains: Sequence[str] = ("source", "target"),
    append_after: Collection[str] = (),
    insert_before: Collection[str] = (),
    *,
    affine: str = "shared",
    mixing: MixingLike | None = None,
) -> nn.Module:
    """Replace every BatchNorm of a network by a DA-layer, in place, and return the network.

    Parameters stay the same objects, so an existing optimizer keeps working. Every domain starts
    from the BatchNorm's statistics, and the network's output in eval mode does not change: where a
    reference measures spread differently (Epsilon, Laplace), the shared affine absorbs the
    difference. References given by name keep each BatchNorm's `eps`.

    An affine per domain is a new parameter, `(D, C)`, whose rows all start from the BatchNorm's:
    make the optimizer afterwards.

    Args:
        model: any network; layers used in several places stay shared.
        reference: the reference distribution, by name or as an object.
        domains: the names of the domains.
        append_after: names of linear or convolutional layers after which a new DA-layer
            (weight 1, bias 0) is inserted, on the layer's output channels.
        insert_before: names of such layers before which one is inserted, on the layer's input
            channels.
        affine: "shared" by all domains, or "per-domain" (DSBN).
        mixing: mixtures of the domains' statistics: "autodial", a function of the domains' names
            that is called for each layer, or a `Mixing`, of which each layer gets a copy.

    Raises:
        DialError: nothing to convert, an unknown name in `append_after` or `insert_before`, another
            `affine`, a `mixing` that does not fit, or a BatchNorm subclass with another forward
            pass.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 5))
    >>> model = convert(model, append_after=["3"])
    >>> [type(layer).__name__ for layer in model]
    ['Conv2d', 'DomainAlignment', 'Flatten', 'AlignedLayer']
    """
    norms = {n: m for n, m in model.named_modules() if isinstance(m, _BatchNorm)}
    _check_request(model, norms, append_after=append_after, insert_before=insert_before)
    replacements: dict[nn.Module, nn.Module] = {}
    maker = partial(_copied, mixing) if isinstance(mixing, Mixing) else mixing
    settings: dict[str, Any] = {"domains": domains, "affine": affine, "mixing": maker}
    for name, norm in norms.items():
        replacements[norm] = _alignment_for(norm, name, reference=reference, **settings)
    for name in dict.fromkeys([*insert_before, *append_after]):
        layer = model.get_submodule(name)
        replacements[layer] = _aligned(
            layer,
            name,
            before=name in insert_before,
            after=name in append_after,
            reference=reference,
            **settings,
        )
    return replace_modules(model, replacements)


def _copied(mixing: Mixing, domains: tuple[str, ...]) -> Mixing:  # noqa: ARG001
    return copy.deepcopy(mixing)


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
    model: nn.Module, norms: dict[str, _BatchNorm], **requested: Collection[str]
) -> None:
    names = [name for name, _ in model.named_modules() if name]
    for field, layers in requested.items():
        if isinstance(layers, str):
            raise DialError(
                wanted=f"a collection of layer names in {field}",
                got=f"the string {layers!r}",
                fix=f"{field}=[{layers!r}]",
            )
        for name in layers:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=3) or names[-3:]
                raise DialError(
                    wanted=f"the name of a layer in {field}",
                    got=f"{name!r}, which {type(model).__name__} does not have",
                    fix=f"take a name of model.named_modules(), such as {', '.join(close)}",
                )
    if not norms and not any(requested.values()):
        converted = any(isinstance(module, DomainSpecific) for module in model.modules())
        raise DialError(
            wanted="a network with BatchNorm layers",
            got=f"a {type(model).__name__} " + ("converted before" if converted else "without any"),
            fix="name the layers that get a DA-layer with append_after=[...] or "
            "insert_before=[...]",
        )


def _alignment_for(
    norm: _BatchNorm, name: str, *, reference: str | Reference, affine: str, **settings: Any
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
    settings |= {
        "reference": references.resolve(reference, eps=norm.eps),
        "affine": False,
        "momentum": norm.momentum,
    }
    kind: type[DomainAlignment] = DomainAlignment
    if fused:
        kind, settings = DomainAlignmentAct, settings | {"drop": norm.drop, "act": norm.act}
    layer = kind(norm.num_features, **settings)
    layer.name, layer.training, layer.norm_eps = name, norm.training, norm.eps
    layer.input_rank = next((r for k, r in _INPUT_RANKS.items() if isinstance(norm, k)), None)
    layer.weight, layer.bias = norm.weight, norm.bias
    if is_per_domain(affine):
        layer.weight, layer.bias = (_row_each(p, layer.domains) for p in (norm.weight, norm.bias))
    _copy_statistics(norm, layer)
    _move_mixing(norm, layer)
    return layer


def _move_mixing(norm: _BatchNorm, layer: DomainAlignment) -> None:
    like = norm.weight if norm.running_mean is None else norm.running_mean
    if layer.mixing is not None and like is not None:
        layer.mixing.to(like)


def _row_each(parameter: nn.Parameter | None, domains: Sequence[str]) -> nn.Parameter | None:
    """Returns a parameter `(D, C)` with a copy of `(C,)` for each domain."""
    if parameter is None:
        return None
    return nn.Parameter(parameter.detach().repeat(len(domains), 1), parameter.requires_grad)


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
    if layer.reference.uses_prior() or (layer.mixing is not None and layer.mixing.uses_prior()):
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


def _aligned(
    layer: nn.Module, name: str, *, before: bool, after: bool, **settings: Any
) -> AlignedLayer:
    """Returns a layer with new DA-layers around it."""
    weight = getattr(layer, "weight", None)
    parts: list[nn.Module] = [layer]
    for wanted, field, side in (
        (before, "insert_before", "in"),
        (after, "append_after", "out"),
    ):
        if not wanted:
            continue
        features = getattr(layer, f"{side}_features", getattr(layer, f"{side}_channels", None))
        if not isinstance(features, int) or not isinstance(weight, Tensor):
            raise DialError(
                wanted=f"linear or convolutional layers in {field}",
                got=f"'{name}', a {type(layer).__name__}",
                fix="name the layer whose input or output is to be aligned",
            )
        settings |= {"device": weight.device, "dtype": weight.dtype}
        new = DomainAlignment(features, **settings)
        new.input_rank = weight.dim()
        parts.insert(0 if side == "in" else len(parts), new)
    for index, part in enumerate(parts):
        if isinstance(part, DomainAlignment):
            part.name = f"{name}.{index}"
    return AlignedLayer(*parts).train(layer.training)
