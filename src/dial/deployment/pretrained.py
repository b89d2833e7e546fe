"""The network that a finished model was trained from, and what it sees in the images of a run."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from dial import backbones
from dial.backbones import Backbone
from dial.data.holdout import sample
from dial.deployment import model as models
from dial.errors import DialError
from dial.methods import Candidate
from dial.selection.outputs import TARGET, Observer
from dial.training.budget import FITTED


class Before(NamedTuple):
    """Features of both domains by the network that training began from."""

    source: Tensor
    """`(N, D)`, of a fair sample of the sources."""
    labels: Tensor
    """`(N,)`, of these images."""
    target: Tensor
    """`(M, D)`, of the target images that outputs keep features of."""
    predicted: Tensor | None
    """`(M,)`, the classes of these by the predictor from before training, if there was one."""


def find(model: models.Model, weights: str) -> Backbone | None:
    """Returns the network that a model was trained from; None if it began at random.

    None also if the weights are gone, or if the network was passed as an object. The random state
    of the caller is kept.
    """
    if weights == "none" or backbones.is_object(model.backbone):
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            entry = backbones.create(
                model.backbone,
                num_classes=len(model.classes),
                weights=weights,
                image_size=model.preprocessing.size,
            )
    except DialError:  # a file that is gone
        return None
    entry.network.eval()
    return entry if entry.pretrained else None


def look_before(
    images: Observer, network: Backbone | None, first: Candidate | None
) -> Before | None:
    """Returns the features of both domains by the network that training began from.

    Args:
        images: of the sources and a target.
        network: the pretrained one, if it is at hand.
        first: the predictor from before training, if there was one: it has the features already.
    """
    if first is not None and first.labels is not None:
        known, order = images.target.known, images.target.pixels.order[: len(first.target)]
        rows = torch.arange(len(order))
        rows = rows if known is None else rows[torch.from_numpy(known[order] < 0)]
        rows = rows[:TARGET]
        return Before(first.source, first.labels, first.target[rows], first.logits[rows].argmax(1))
    if network is None:
        return None
    some = sampled(images)
    source = some.observe_sources(network.network, FITTED[0])
    target = torch.from_numpy(some.observe_target(network.network).features)
    features, labels = torch.from_numpy(source.features), torch.from_numpy(source.labels)
    return Before(features, labels, target, None)


def sampled(images: Observer) -> Observer:
    """Returns an observer of a fair sample of the sources."""
    most = FITTED[0] // len(images.sources)
    return replace(images, sources={k: sample(each, most) for k, each in images.sources.items()})


def digest(entry: Backbone) -> str:
    """Returns a hash of a network's tensors, but for its classifier, which may be a random one."""
    tensors = models.state(entry.network)
    own = {k: v for k, v in tensors.items() if not k.startswith(f"{entry.classifier}.")}
    return digest_tensors(own, about=entry.name)


def digest_tensors(tensors: Mapping[str, Tensor], *, about: str) -> str:
    """Returns a hash of a text and of tensors with their names."""
    content = hashlib.blake2b(about.encode(), digest_size=16)
    for name, tensor in tensors.items():
        content.update(name.encode())
        content.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return content.hexdigest()
