"""`fold`: a finished network without DA-layers, in plain torch, with the same outputs."""

import copy
import sys
from typing import Any

import torch
from torch import Tensor, fx, nn

from dial.errors import DialError
from dial.layers.alignment import DomainAlignment, DomainAlignmentAct
from dial.layers.context import DomainSpecific, domain_layers
from dial.layers.conversion import AlignedLayer, replace_modules
from dial.layers.whitening import (
    has_matrix,
    merge_matrix_into_next,
    mixes_channels,
    take_out_matrices,
)

_BATCH_NORMS: dict[int | None, type[nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d]]
_BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
Maps = dict[DomainAlignment, tuple[Tensor, Tensor]]
"""Frozen location and squared scale of DA-layers."""
_FUSIBLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def fold(model: nn.Module, domain: str = "target", *, fuse: bool = True) -> nn.Module:
    """Returns the predictor of one domain, a network without any class of this package.

    A DA-layer with fixed statistics is an affine map of each channel. One that `convert` put before
    or after a linear or convolutional layer is multiplied into that layer. One that replaced a
    BatchNorm is multiplied into the layer before it, if the network's graph shows that this layer
    feeds nothing else. Otherwise it becomes an ordinary BatchNorm; so does one before a convolution
    that pads its input with zeros. A whitened layer is a matrix as well, which goes the same way,
    also without `fuse`; where it cannot, as after a depthwise convolution, it becomes a 1x1
    convolution (a linear layer for vectors) before that BatchNorm.

    Args:
        model: a network with DA-layers; it is not changed.
        domain: the domain whose statistics to use.
        fuse: whether to multiply what were BatchNorms into the layers before; if not, the
            network keeps the architecture it had before `convert`.

    Returns:
        A copy in eval mode.

    Raises:
        DialError: no DA-layers, no such domain, or layers without statistics of it.

    >>> from dial import convert
    >>> model = convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()))
    >>> fold(model)
    Sequential(
      (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
      (1): Identity()
      (2): ReLU()
    )
    """
    plain = copy.deepcopy(getattr(model, "_orig_mod", model)).eval()
    domain_layers(plain)  # or an error, if there are none
    if mixes_channels(plain, domain):
        _merge_matrices(plain, domain)
        plain = take_out_matrices(plain, domain, _fusible_sources(plain))
    layers = {n: m for n, m in domain_layers(plain).items() if isinstance(m, DomainAlignment)}
    sources = _sources(plain) if fuse else {}
    maps = {layer: _transform(layer, name, domain) for name, layer in layers.items()}
    for layer in layers.values():
        _keep_affine_of(domain, layer)
    aligned = [module for module in plain.modules() if isinstance(module, AlignedLayer)]
    replacements: dict[nn.Module, nn.Module] = {}
    for module in reversed(aligned):  # inner ones first
        _merge(module, maps, replacements)
    for name, layer in layers.items():
        if layer not in replacements:
            fused = layer in sources and _fuse(sources[layer], layer, *maps[layer])
            replacements[layer] = _rest(layer) if fused else _norm(layer, name, *maps[layer])
    for module in reversed(aligned):
        parts = [replacements.get(part, part) for part in module]
        parts = [part for part in parts if not isinstance(part, nn.Identity)]
        replacements[module] = parts[0] if len(parts) == 1 else nn.Sequential(*parts)
    return replace_modules(plain, replacements).eval()


def _transform(layer: DomainAlignment, name: str, domain: str) -> tuple[Tensor, Tensor]:
    """Returns the frozen location and squared scale of a layer, in float64."""
    statistics = layer.mixed_statistics(domain)
    if statistics is None:
        raise DialError(
            wanted=f"statistics of domain {domain!r} in every DA-layer",
            got=f"none in '{name}', which replaces a BatchNorm that tracks none",
            fix=f"call dial.calibrate(model, loader, domain={domain!r}) first",
        )
    location, square = layer.reference.transform(statistics, layer.prior)
    return location.detach().double(), square.detach().double()


@torch.no_grad()
def _keep_affine_of(domain: str, layer: DomainAlignment) -> None:
    """Drop the rows of other domains from an affine per domain; `layer` is a copy."""
    for name in ("weight", "bias"):
        parameter = getattr(layer, name)
        if parameter is not None and parameter.dim() > 1:
            row = parameter[layer.index_of(domain)].clone()
            setattr(layer, name, nn.Parameter(row, parameter.requires_grad))


def _sources(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """Returns the layer before each DA-layer, if nothing else uses that layer's output.

    The trace does not look into parts without DA-layers, so only control flow between DA-layers
    can make it fail; then nothing is fused.
    """
    inner = {m for m in model.modules() if any(isinstance(c, DomainSpecific) for c in m.modules())}

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
            return isinstance(m, DomainSpecific) or m not in inner

    if isinstance(model, DomainSpecific):
        return {}
    try:
        graph = Tracer().trace(model)
    except Exception:  # noqa: BLE001 - whatever a forward pass raises when it meets no tensors
        return {}
    calls = [node for node in graph.nodes if node.op == "call_module"]
    modules = {node: model.get_submodule(node.target) for node in calls}
    times = [list(modules.values()).count(module) for module in modules.values()]
    once = {node for node, count in zip(calls, times, strict=True) if count == 1}
    return {
        modules[node]: modules[source]
        for node in once
        if isinstance(modules[node], DomainAlignment)
        for source in node.all_input_nodes
        if source in once and len(source.users) == 1
    }


def _merge_matrices(model: nn.Module, domain: str) -> None:
    """Multiply whitened layers before a layer into it; they are the identity afterwards.

    Raises:
        DialError: the layer is not one to multiply a matrix into.
    """
    for module in model.modules():
        if not isinstance(module, AlignedLayer):
            continue
        layer: Any = module.layer
        sides = [side for side in (module.before, module.after) if side is not None]
        if not any(has_matrix(side, domain) for side in sides):
            continue
        grouped = getattr(layer, "groups", 1) > 1
        if not _is_fusible(layer) or grouped or (module.before and _pads_with_zeros(layer)):
            raise DialError(
                wanted=f"a linear layer, or a convolution without groups and zeros around its "
                f"input, to multiply {sides[0].description()} into",
                got=f"a {type(layer).__name__}",
                fix="take another reference than whitened, or other layers",
            )
        if module.before is not None:
            merge_matrix_into_next(module.before, layer, domain)


def _fusible_sources(model: nn.Module) -> dict[DomainAlignment, nn.Module]:
    """Returns the layer before each DA-layer, where that layer may be changed."""
    sources = {
        layer: source
        for layer, source in _sources(model).items()
        if isinstance(layer, DomainAlignment) and _can_fuse(source, layer)
    }
    aligned = (module for module in model.modules() if isinstance(module, AlignedLayer))
    return sources | {module.after: module.layer for module in aligned if module.after is not None}


@torch.no_grad()
def _merge(module: AlignedLayer, maps: Maps, replacements: dict[nn.Module, nn.Module]) -> None:
    """Multiply the DA-layers around a layer into it, where that is possible."""
    layer, inner = module.layer, next(m for m in module if not isinstance(m, DomainAlignment))
    if isinstance(inner, AlignedLayer) and any(
        isinstance(part, DomainAlignment) and part not in replacements for part in inner
    ):
        return  # what lies between could not be merged
    for alignment, merge in ((module.before, _merge_before), (module.after, _merge_after)):
        if alignment is None:
            continue
        if _is_fusible(layer) and merge(layer, *_affine(alignment, *maps[alignment])):
            replacements[alignment] = nn.Identity()
        elif isinstance(layer, nn.Linear) and alignment.input_rank not in (None, 2):
            raise DialError(
                wanted=f"an ordinary linear layer to merge {alignment.description()} into",
                got=f"a {type(layer).__name__} with hooks or weights of its own making",
                fix="name another layer in append_after or insert_before",
            )


@torch.no_grad()
def _fuse(source: nn.Module, layer: DomainAlignment, location: Tensor, square: Tensor) -> bool:
    """Multiply a frozen DA-layer into the layer before it; returns False if not possible."""
    return _can_fuse(source, layer) and _merge_after(source, *_affine(layer, location, square))


def _can_fuse(source: nn.Module, layer: DomainAlignment) -> bool:
    """Whether a DA-layer can be multiplied into the layer before it."""
    if isinstance(source, nn.Linear) and layer.input_rank not in (None, 2):
        return False  # on (N, L, C) a linear layer's features are not the DA-layer's channels
    return _is_fusible(source) and not source._forward_hooks


def _is_fusible(layer: nn.Module) -> bool:
    kinds = (*_FUSIBLE, *_timm_convolutions())
    is_plain = type(layer) in kinds and isinstance(layer.weight, nn.Parameter)
    return is_plain and not nn.utils.parametrize.is_parametrized(layer)


def _affine(layer: DomainAlignment, location: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """Returns factor and shift of each channel: the layer computes `factor * x + shift`."""
    factor = square.rsqrt() * (1 if layer.weight is None else layer.weight.double())
    return factor, -location * factor + (0 if layer.bias is None else layer.bias.double())


def _merge_after(layer: Any, factor: Tensor, shift: Tensor) -> bool:
    """`factor * (W x + d) + shift` as one layer; returns False if not possible."""
    if layer._forward_hooks:
        return False
    weight = layer.weight.double() * factor.view(-1, *[1] * (layer.weight.dim() - 1))
    bias = shift if layer.bias is None else shift + layer.bias.double() * factor
    _set(layer, weight, bias)
    return True


def _merge_before(layer: Any, factor: Tensor, shift: Tensor) -> bool:
    """`W (factor * x + shift) + d` as one layer; returns False if not possible."""
    if layer._forward_pre_hooks or _pads_with_zeros(layer):
        return False
    weight = layer.weight.double()
    rows = torch.arange(len(weight), device=weight.device)
    groups = getattr(layer, "groups", 1)
    group = rows * groups // len(weight)  # of each output channel
    shape = len(weight), -1, *[1] * (weight.dim() - 2)
    factor, shift = (values.view(groups, -1)[group].view(shape) for values in (factor, shift))
    bias = (weight * shift).flatten(1).sum(1)
    _set(layer, weight * factor, bias if layer.bias is None else bias + layer.bias.double())
    return True


def _pads_with_zeros(layer: Any) -> bool:
    """Whether a layer adds zeros to its input, which a DA-layer before it does not shift."""
    if isinstance(layer, nn.Linear):
        return False
    if type(layer) in _timm_convolutions():  # as many as the image needs
        return any(size > 1 for size in layer.kernel_size)
    return layer.padding_mode == "zeros" and any(layer._reversed_padding_repeated_twice)


def _set(layer: Any, weight: Tensor, bias: Tensor) -> None:
    """Give a layer new parameters, of its own even where its weight is tied to another's."""
    like = layer.weight
    layer.weight = nn.Parameter(weight.to(like.dtype), like.requires_grad)
    layer.bias = nn.Parameter(bias.to(like.dtype), like.requires_grad)


def _timm_convolutions() -> tuple[type[nn.Module], ...]:
    module = sys.modules.get("timm.layers.conv2d_same")
    return (module.Conv2dSame,) if module else ()


def _rest(layer: DomainAlignment) -> nn.Module:
    """Returns what a layer does after the alignment."""
    modules = [layer.drop, layer.act] if isinstance(layer, DomainAlignmentAct) else []
    modules = [module for module in modules if not isinstance(module, nn.Identity)]
    if len(modules) == 1:
        return modules[0]
    return nn.Sequential(*modules) if modules else nn.Identity()


@torch.no_grad()
def _norm(layer: DomainAlignment, name: str, location: Tensor, square: Tensor) -> nn.Module:
    """Returns the BatchNorm, torch's or timm's, that equals a frozen DA-layer in eval mode."""
    if layer.input_rank not in _BATCH_NORMS:
        raise DialError(
            wanted=f"to know whether '{name}' becomes a BatchNorm1d, 2d or 3d",
            got="a DA-layer that has not had a batch",
            fix="run one batch through the network before folding it",
        )
    kind: Any = _BATCH_NORMS[layer.input_rank]
    if isinstance(layer, DomainAlignmentAct):
        kind = sys.modules["timm.layers.norm_act"].BatchNormAct2d
    # The eps of the original norm, so that its architecture can load this state dict. A scale
    # below that eps cannot be expressed by a variance and goes into the weight.
    eps = layer.norm_eps
    below = bool((square < eps).any())
    affine = layer.weight is not None
    if below and not affine:
        eps = float(square.min()) / 2
    norm = kind(layer.num_features, eps=eps, momentum=layer.momentum, affine=affine)
    norm.to(layer.location)
    variance = (square - eps).clamp(min=0)
    norm.running_mean.copy_(location)
    norm.running_var.copy_(variance)
    norm.weight, norm.bias = layer.weight, layer.bias
    if below and layer.weight is not None:
        weight = layer.weight.double() * ((variance + eps) / square).sqrt()
        norm.weight = nn.Parameter(weight.to(layer.weight), layer.weight.requires_grad)
    if isinstance(layer, DomainAlignmentAct):
        norm.drop, norm.act = layer.drop, layer.act
    return norm.eval()  # type: ignore[no-any-return]
