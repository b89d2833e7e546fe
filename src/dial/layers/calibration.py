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
from dial.references import Accumulator, Statistics, unsynchronized

Accumulators = dict[DomainAlignment, Accumulator]


@torch.no_grad()
def calibrate(
    model: nn.Module, loader: Iterable[Any], domain: str = "target", *, passes: int | None = None
) -> None:
    """Give every DA-layer the statistics of all of a domain's images.

    Mean and variance of a layer are those of all values that reach it, not averages over batches,
    which may be uneven. The input of a layer depends on the layers before it. So the first pass
    normalizes each batch by its own statistics, and later passes by the domain's from the pass
    before; after `k` passes the first `k` layers are exact and the deeper ones close. Other
    references (Laplace) use a uniform sample of up to 8192 values per channel. If there are more
    values than that, one pass is the default: a second one would build on the sampling errors of
    the first, which grow from layer to layer.

    Only statistics change. Modes and hooks are restored, also if the loader fails halfway, and
    then the statistics are unchanged.

    Args:
        model: a network with DA-layers.
        loader: can be iterated `passes` times; its batches are tensors, or tuples and lists that
            begin with one.
        domain: the domain of these images.
        passes: the number of passes; 2 by default, or 1 where samples are taken.

    Raises:
        DialError: no DA-layers, no images, or batches of another kind.
    """
    model = getattr(model, "_orig_mod", model)  # a compiled network would not run the hooks
    layers = [module for module in model.modules() if isinstance(module, DomainAlignment)]
    for index in range(2 if passes is None else passes):
        with (
            use_domain(model, domain),
            unsynchronized(),
            _accumulating(model, layers, batch_statistics=index == 0) as accumulators,
        ):
            for batch in _inputs(model, loader):
                model(batch)
        if not accumulators:
            raise DialError(
                wanted=f"images of domain {domain!r} to take statistics from",
                got="a loader without any" if index == 0 else "none in the second pass",
                fix="pass a loader that can be iterated more than once, such as a DataLoader",
            )
        results = {layer: Statistics(*a.result()) for layer, a in accumulators.items()}
        for layer, statistics in results.items():
            layer.set_statistics(domain, statistics)
        if passes is None and not all(a.exact for a in accumulators.values()):
            return


@contextmanager
def _accumulating(
    model: nn.Module, layers: list[DomainAlignment], *, batch_statistics: bool
) -> Iterator[Accumulators]:
    """Eval mode, with the inputs of all DA-layers accumulated.

    With `batch_statistics` the layers normalize each batch by its own statistics.
    """
    modes = {module: module.training for module in model.modules()}
    momenta = {layer: (layer.momentum, layer.num_batches_tracked.clone()) for layer in layers}
    accumulators: Accumulators = {}
    observe = partial(_observe, accumulators=accumulators, batch_statistics=batch_statistics)
    hooks = [layer.register_forward_pre_hook(observe) for layer in layers]
    try:
        model.eval()
        for layer in layers:
            layer.momentum = 0.0  # running statistics stay as they are until the pass is over
        yield accumulators
    finally:
        for hook in hooks:
            hook.remove()
        for layer, (momentum, tracked) in momenta.items():
            layer.momentum = momentum
            layer.num_batches_tracked.copy_(tracked)
        for module, training in modes.items():
            module.training = training


def _observe(
    layer: DomainAlignment,
    inputs: tuple[Tensor, ...],
    *,
    accumulators: Accumulators,
    batch_statistics: bool,
) -> None:
    x = inputs[0]
    if layer not in accumulators:
        accumulators[layer] = layer.reference.accumulator()
    accumulators[layer].add(x)
    # One value per channel has no deviation.
    layer.training = batch_statistics and x.numel() > x.shape[1]


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
    """Returns images on the device of a network's parameters, and in their precision."""
    anchor = next(model.parameters(), None)
    if anchor is None:
        return images
    return images.to(anchor) if images.is_floating_point() else images.to(anchor.device)
