"""What happens inside a plain network while it sees a domain: logits, features, statistics."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial.backbones import hidden_features
from dial.layers.calibration import to_network
from dial.references._accumulators import MomentPool

SAMPLE = 500
"""Images of a domain that moments are taken over, unless told otherwise."""
_POSITIONS = 64


class Moments(NamedTuple):
    """Mean and (biased) variance of each channel of what reaches a layer, `(C,)` each."""

    mean: Tensor
    var: Tensor


class Observation(NamedTuple):
    """What a network made of some images."""

    logits: Tensor
    """`(N, K)`, of all."""
    features: Tensor
    """`(M, D)`, of the first ones."""
    moments: dict[str, Moments]
    """By the names of the normalisation layers, of what reaches them (at about 64 positions of
    an image), over the first images."""


@torch.no_grad()
def observe(
    network: nn.Module,
    batches: Iterable[Tensor],
    *,
    classifier: str,
    kept: int = sys.maxsize,
    measured: int = SAMPLE,
) -> Observation:
    """Send images through a network in eval mode; nothing of it changes but its mode.

    Args:
        network: one without DA-layers, such as a method's predictor, if it is measured.
        batches: of images.
        classifier: the name of the layer whose input are the features.
        kept: how many images, at most, features are kept of.
        measured: how many images, at most, moments are taken over.
    """
    network.eval()
    logits, features, seen = [], [], 0
    with hidden_features(network, classifier) as found, _pooling(network) as (pools, left):
        for images in batches:
            left[:] = [max(0, measured - seen)]
            logits.append(network(to_network(images, network)).float().cpu())
            features.append(found.pop()[: max(0, kept - seen)].float().cpu())
            seen += len(images)
    moments = {name: Moments(*pool.result()) for name, pool in pools.items() if pool.count}
    return Observation(torch.cat(logits), torch.cat(features), moments)


@contextmanager
def _pooling(network: nn.Module) -> Iterator[tuple[dict[str, MomentPool], list[int]]]:
    """Pools of what reaches the normalisation layers, and how many rows still go into them."""
    norms = {n: m for n, m in network.named_modules() if isinstance(m, _BatchNorm)}
    pools = {name: MomentPool() for name in norms}
    left: list[int] = []

    def take_in(_: nn.Module, inputs: tuple[Tensor, ...], *, pool: MomentPool) -> None:
        x = inputs[0][: left[0]]
        if x.dim() > 2:  # noqa: PLR2004 - some positions of each image tell as much as all
            places = x.flatten(2)
            x = places[:, :, :: places.shape[2] // _POSITIONS | 1]
        pool.add(x)

    hooks = [
        norm.register_forward_pre_hook(partial(take_in, pool=pools[name]))
        for name, norm in norms.items()
    ]
    try:
        yield pools, left
    finally:
        for hook in hooks:
            hook.remove()
