"""Find in a network what nobody said about it: its classifier, and the images that it wants."""

import difflib
from typing import Any

from torch import nn

from dial.errors import DialError
from dial.layers.conversion import Appended

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def find_classifier(network: nn.Module, name: str | None = None) -> str:
    """The name of the layer that gives the logits; a given name is only checked.

    timm's networks say it themselves. In others it is the last linear layer, or the last
    convolution where there is no linear one.

    Raises:
        DialError: there is no such layer, several, or a layer of another kind by that name.

    >>> find_classifier(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    '2'
    """
    modules = dict(network.named_modules())
    layers = {n: _inner(m) for n, m in modules.items() if n and isinstance(_inner(m), _KINDS)}
    if name is None:
        name = _configuration(network).get("classifier") or _last(layers)
    if name in layers:
        return str(name)
    close = difflib.get_close_matches(str(name), layers, n=3) or list(layers)[-3:]
    raise DialError(
        wanted=f"one linear or convolutional layer of {type(network).__name__} as its classifier",
        got=f"{name!r}" + (f", a {type(modules[name]).__name__}" if name in modules else ""),
        fix="give its name as `classifier`" + (f", such as {', '.join(close)}" if close else ""),
    )


def find_input(network: nn.Module) -> dict[str, Any]:
    """Image size, crop, mean and deviation: timm's for a network of its own, or ImageNet's."""
    known = _configuration(network)
    return {
        "image_size": int(known.get("input_size", (3, 224, 224))[-1]),
        "mean": tuple(known.get("mean", IMAGENET_MEAN)),
        "std": tuple(known.get("std", IMAGENET_STD)),
        "crop_ratio": float(known.get("crop_pct", 0.875)),
    }


_KINDS = (nn.Linear, nn.Conv2d)


def _inner(module: nn.Module) -> nn.Module:
    return module[0] if isinstance(module, Appended) else module


def _last(layers: dict[str, nn.Module]) -> str | None:
    linear = [name for name, layer in layers.items() if isinstance(layer, nn.Linear)]
    outside = [n for n in linear or layers if n.rpartition(".")[0] not in layers]
    return outside[-1] if outside else None


def _configuration(network: nn.Module) -> dict[str, Any]:
    """What timm knows about a network of its own; empty for others."""
    known = getattr(network, "pretrained_cfg", None)
    return known if isinstance(known, dict) else {}
