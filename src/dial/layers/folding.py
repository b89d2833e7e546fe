"""`fold`: a finished network without DA-layers, in plain torch, with the same outputs."""

import copy
import sys
from typing import Any

import torch
from torch import Tensor, fx, nn

from dial.errors import DialError
from dial.layers.alignment import DomainAlignment, DomainAlignmentAct
from dial.layers.context import DomainSpecific, domain_layers
from dial.layers.conversion import Appended, replace_modules
from dial.layers.whitening import mixes_channels, take_out_matrices

_BATCH_NORMS: dict[int | None, type[nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d]]
_BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
_FUSIBLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def fold(model: nn.Module, domain: str = "target", *, fuse: bool = True) -> nn.Module:
    """Returns the predictor of one domain, a network without any class of this package.

    A DA-layer with fixed statistics is an affine map of each channel. It is multiplied into the
    convolution or linear layer before it, if the network's graph shows that this layer feeds
    nothing else. Otherwise it becomes an ordinary BatchNorm. A whitened layer is a matrix as well,
    which goes the same way, also without `fuse`; where it cannot, as after a depthwise convolution,
    it becomes a 1x1 convolution (a linear layer for vectors) before that BatchNorm.

    Args:
        model: a network with DA-layers; it is not changed.
        domain: the domain whose statistics to use.
        fuse: whether to multiply into the layers before; if not, the network keeps the
            architecture it had before `convert`.

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
        plain = take_out_matrices(plain, domain, _fusible_sources(plain))
    layers = {n: m for n, m in domain_layers(plain).items() if isinstance(m, DomainAlignment)}
    sources = _sources(plain) if fuse else {}
    replacements: dict[nn.Module, nn.Module] = {}
    for name, layer in layers.items():
        location, square = _transform(layer, name, domain)
        fused = layer in sources and _fuse(sources[layer], layer, location, square)
        replacements[layer] = _rest(layer) if fused else _norm(layer, name, location, square)
    for module in plain.modules():
        if isinstance(module, Appended):
            first, after = module[0], replacements.get(module[1], module[1])
            fused = isinstance(after, nn.Identity)
            replacements[module] = first if fused else nn.Sequential(first, after)
    return replace_modules(plain, replacements).eval()


def _transform(layer: DomainAlignment, name: str, domain: str) -> tuple[Tensor, Tensor]:
    """Returns the frozen location and squared scale of a layer, in float64."""
    statistics = layer.statistics(domain)
    if statistics is None:
        raise DialError(
            wanted=f"statistics of domain {domain!r} in every DA-layer",
            got=f"none in '{name}', which replaces a BatchNorm that tracks none",
            fix=f"call dial.calibrate(model, loader, domain={domain!r}) first",
        )
    location, square = layer.reference.transform(statistics, layer.prior)
    return location.detach().double(), square.detach().double()


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


def _fusible_sources(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """Returns the layer before each DA-layer, where that layer may be changed."""
    sources = _sources(model)
    for module in model.modules():  # these follow each other, whether the network traces or not
        if isinstance(module, Appended):
            sources[module[1]] = module[0]
    return {layer: source for layer, source in sources.items() if _is_fusible(source, layer)}


def _is_fusible(source: nn.Module, layer: Any) -> bool:
    """Whether a DA-layer can be multiplied into the layer before it."""
    if type(source) not in (*_FUSIBLE, *_timm_convolutions()) or source._forward_hooks:
        return False
    if nn.utils.parametrize.is_parametrized(source):
        return False
    if isinstance(source, nn.Linear) and layer.input_rank not in (None, 2):
        return False  # on (N, L, C) a linear layer's features are not the DA-layer's channels
    return isinstance(source.weight, nn.Parameter)


@torch.no_grad()
def _fuse(source: Any, layer: DomainAlignment, location: Tensor, square: Tensor) -> bool:
    """Multiply a frozen DA-layer into the layer before it; returns False if not possible."""
    if not _is_fusible(source, layer):
        return False
    weight, bias = source.weight, source.bias
    factor = square.rsqrt() * (1 if layer.weight is None else layer.weight.double())
    shift = -location * factor + (0 if layer.bias is None else layer.bias.double())
    if isinstance(bias, Tensor):
        shift = shift + bias.double() * factor
    weight.copy_(weight.double() * factor.view(-1, *[1] * (weight.dim() - 1)))
    source.bias = nn.Parameter(shift.to(weight.dtype), weight.requires_grad)
    return True


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
