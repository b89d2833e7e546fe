"""The pretrained network that a finished model was trained from, where its weights are at hand."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from dial import backbones
from dial.backbones import Backbone
from dial.deployment import model as models
from dial.errors import DialError


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
