"""Statistics of a whole domain for every DA-layer, from a pass over its images."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dial.errors import DialError
from dial.layers.alignment import DomainAlignment
from dial.layers.context import use_domain
from dial.references import Statistics
from dial.references import _synchronization as synchronisation
from dial.references._accumulators import Pool


@torch.no_grad()
def calibrate(
    model: nn.Module, loader: Iterable[Any], domain: str = "target", *, passes: int | None = None
) -> None:
    """Give every DA-layer the statistics of all of a domain's images.

    Values are pooled over batches, however uneven, not averaged batch by batch: a layer's mean
    and variance are those of everything that reached it. What reaches a layer depends on the
    layers before, so the first pass normalises each batch by its own statistics, and the others
    by the domain's found so far; after `k` passes the first `k` layers are exact and those behind
    them close. Other references (Laplace) see a uniform sample of up to 8192 values a channel.
    Where there are more, one pass is the default: a second one would be built on the sampling
    errors of the first, which grow from layer to layer.

    Only statistics change: modes and hooks are as before, also when the loader fails halfway,
    and then the statistics are as they were.

    Args:
        model: a network with DA-layers.
        loader: can be iterated `passes` times; its batches are tensors, or tuples and lists that
            begin with one.
        domain: whose images these are.
        passes: how often to go over them; 2 by default, or 1 where samples are taken.

    Raises:
        DialError: no DA-layers, no images, or batches of another kind.
    """
    model = getattr(model, "_orig_mod", model)  # a compiled network would not run the hooks
    layers = [module for module in model.modules() if isinstance(module, DomainAlignment)]
    found: dict[DomainAlignment, Statistics] = {}
    for index in range(2 if passes is None else passes):
        with (
            use_domain(model, domain),
            synchronisation.paused(),
            _observing(model, layers, learn=index == 0) as pools,
        ):
            for batch in _inputs(model, loader):
                model(batch)
        if not pools:
            raise DialError(
                wanted=f"images of domain {domain!r} to take statistics from",
                got="a loader without any" if index == 0 else "none in the second pass",
                fix="pass a loader that can be iterated more than once, such as a DataLoader",
            )
        found = {layer: Statistics(*pool.result()) for layer, pool in pools.items()}
        for layer, statistics in found.items():
            layer.set_statistics(domain, statistics)
        if passes is None and not all(pool.exact for pool in pools.values()):
            return


@contextmanager
def _observing(
    model: nn.Module, layers: list[DomainAlignment], *, learn: bool
) -> Iterator[dict[DomainAlignment, Pool]]:
    """Eval mode, with all inputs of DA-layers pooled; `learn` lets them use batch statistics."""
    modes = {module: module.training for module in model.modules()}
    momenta = {layer: (layer.momentum, layer.num_batches_tracked.clone()) for layer in layers}
    pools: dict[DomainAlignment, Pool] = {}
    observe = partial(_pool_input, pools=pools, learn=learn)
    hooks = [layer.register_forward_pre_hook(observe) for layer in layers]
    try:
        model.eval()
        for layer in layers:
            layer.momentum = 0.0  # running statistics stay put until the pass is over
        yield pools
    finally:
        for hook in hooks:
            hook.remove()
        for layer, (momentum, tracked) in momenta.items():
            layer.momentum = momentum
            layer.num_batches_tracked.copy_(tracked)
        for module, training in modes.items():
            module.training = training


def _pool_input(
    layer: nn.Module, inputs: tuple[Tensor, ...], *, pools: dict[Any, Pool], learn: bool
) -> None:
    assert isinstance(layer, DomainAlignment)  # noqa: S101 - for the type checker
    x = inputs[0]
    if layer not in pools:
        pools[layer] = layer.reference.pool()
    pools[layer].add(x)
    layer.training = learn and x.numel() > x.shape[1]  # one value a channel has no deviation


def _inputs(model: nn.Module, loader: Iterable[Any]) -> Iterator[Tensor]:
    for batch in loader:
        images = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
        if not isinstance(images, Tensor):
            raise DialError(
                wanted="batches that are a tensor of images, or begin with one",
                got=f"a {type(batch).__name__}",
                fix="pass a loader of images or of (images, ...) tuples",
            )
        yield to_network(images, model)


def to_network(images: Tensor, model: nn.Module) -> Tensor:
    """Images on the device of a network's parameters, and in their precision."""
    anchor = next(model.parameters(), None)
    if anchor is None:
        return images
    return images.to(anchor) if images.is_floating_point() else images.to(anchor.device)
