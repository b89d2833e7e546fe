"""What happens inside a plain network while it sees a domain: logits, features, statistics."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial.backbones import hidden_features
from dial.calibration import to_network
from dial.pooling import MomentPool
from dial.shift import Moments

_POSITIONS = 64


class Observation(NamedTuple):
    """Of the images that were looked at closely: features `(M, D)`, and each layer's moments."""

    logits: Tensor
    """`(N, K)`, of all images."""
    features: Tensor
    moments: dict[str, Moments]
    """By the names of the normalisation layers, of what reaches them (at about 64 positions of
    an image)."""


@torch.no_grad()
def observe(
    network: nn.Module, batches: Iterable[Tensor], *, classifier: str, closely: Tensor | None = None
) -> Observation:
    """Send images through a network in eval mode; nothing of it changes.

    Args:
        network: one without DA-layers, such as a method's predictor.
        batches: of images.
        classifier: the name of the layer whose input are the features.
        closely: `(N,)` booleans, of which images to keep more than logits; of all by default.
    """
    network.eval()
    logits, kept, seen = [], [], 0
    with (
        hidden_features(network, classifier) as features,
        _pooling(network) as (pools, looking),
    ):
        for images in batches:
            every = torch.ones(len(images), dtype=torch.bool)
            looking[:] = [every if closely is None else closely[seen : seen + len(images)]]
            seen += len(images)
            logits.append(network(to_network(images, network)).float().cpu())
            kept.append(features.pop().float().cpu()[looking[0]])
    moments = {name: Moments(*pool.result()) for name, pool in pools.items() if pool.count}
    return Observation(torch.cat(logits), torch.cat(kept), moments)


@contextmanager
def _pooling(network: nn.Module) -> Iterator[tuple[dict[str, MomentPool], list[Tensor]]]:
    """Pools of what reaches the normalisation layers, and a list to say which rows count."""
    norms = {n: m for n, m in network.named_modules() if isinstance(m, _BatchNorm)}
    pools = {name: MomentPool() for name in norms}
    looking: list[Tensor] = []

    def take_in(_: nn.Module, inputs: tuple[Tensor, ...], *, pool: MomentPool) -> None:
        x, (rows,) = inputs[0], looking
        x = x if bool(rows.all()) else x[rows.to(x.device)]
        if x.dim() > 2:  # noqa: PLR2004 - some positions of each image tell as much as all
            places = x.flatten(2)
            x = places[:, :, :: places.shape[2] // _POSITIONS | 1]
        pool.add(x)

    hooks = [
        norm.register_forward_pre_hook(partial(take_in, pool=pools[name]))
        for name, norm in norms.items()
    ]
    try:
        yield pools, looking
    finally:
        for hook in hooks:
            hook.remove()
