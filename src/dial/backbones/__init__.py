"""Networks to adapt, one a file: by the names that `--backbone` takes, or as objects."""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dial.backbones import _weights
from dial.backbones.interface import Backbone, classifier_layer, hidden_features
from dial.errors import DialError, missing_extra
from dial.registry import Registry

__all__ = [
    "BACKBONES",
    "Backbone",
    "build",
    "classifier_layer",
    "create",
    "describe",
    "hidden_features",
    "is_object",
]

BACKBONES = Registry("dial.backbones", Backbone)
describe = BACKBONES.describe
_OBJECT = "object:"  # marks the name of a network that was passed as an object


def build(name: str, num_classes: int = 31, weights: str | Path = "auto") -> nn.Module:
    """Returns a network by the name that `--backbone` takes, before conversion.

    Args:
        name: one of `describe()`, such as `efficientnet_lite0` or `timm:resnet18`.
        num_classes: the number of the classifier's outputs.
        weights: `auto` for the public weights, `none` for random ones, or a file.

    Raises:
        DialError: an unknown name, or weights that are not available, cannot be read, or do not
            fit.

    >>> build("digits_cnn", num_classes=10).classifier
    Linear(in_features=1152, out_features=10, bias=True)
    """
    return create(name, num_classes=num_classes, weights=weights).network


def create(
    backbone: str | Backbone | nn.Module,
    *,
    num_classes: int = 31,
    weights: str | Path = "auto",
    image_size: int | None = None,
    append_after: Sequence[str] | None = None,
    align_logits: bool | None = None,
    frozen: Sequence[str] | None = None,
) -> Backbone:
    """Returns a backbone: a network, and what training needs to know about it.

    Args:
        backbone: a name, as for `build`; or a network of your own, which is copied.
        num_classes: the number of the classifier's outputs.
        weights: as for `build`; a network of your own keeps its weights, unless this is a file.
        image_size: the side of the images that will come; a network that is made for one size
            is resized for it, if timm can.
        append_after: names of layers that a DA-layer follows; None is the backbone's default.
        align_logits: whether a DA-layer follows the classifier; None is the backbone's default.
        frozen: names of parts that are not trained; None is the backbone's default.

    Raises:
        DialError: as for `build`; a network with another number of outputs, or for images of
            another size; or unknown names in `append_after` or `frozen`.

    >>> create("digits_cnn", num_classes=10, align_logits=False).append_after
    ()
    >>> create(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), num_classes=5).name
    'object:Sequential'
    """
    if num_classes < 1:
        raise DialError(
            wanted="a number of classes", got=repr(num_classes), fix="give 2 or more classes"
        )
    if isinstance(backbone, str):
        entry = _by_name(backbone, num_classes=num_classes, weights=weights)
    else:
        entry = _of_object(backbone, num_classes=num_classes, weights=weights)
    if image_size is not None:
        entry = _resize(entry, image_size)
    if append_after is not None:
        entry = replace(entry, append_after=tuple(append_after))
    if align_logits is not None:
        others = [layer for layer in entry.append_after if layer != entry.classifier]
        logits = [entry.classifier] if align_logits else []
        entry = replace(entry, append_after=(*others, *logits))
    return entry if frozen is None else replace(entry, frozen=tuple(frozen))


def _resize(entry: Backbone, size: int) -> Backbone:
    """Prepare a network of timm's for images of another size, where it is made for one size."""
    network: Any = entry.network
    configuration = getattr(network, "pretrained_cfg", None) or {}
    if size == entry.image_size or not configuration.get("fixed_input_size"):
        return entry
    modes = {module: module.training for module in network.modules()}
    try:
        with warnings.catch_warnings(), torch.no_grad():  # of timm's own interpolation
            warnings.simplefilter("ignore")
            if hasattr(network, "set_input_size"):
                network.set_input_size(img_size=size)
            network.eval()(next(network.parameters()).new_zeros(1, len(entry.mean), size, size))
    except Exception as error:  # whatever a network raises if images do not fit
        raise DialError(
            wanted=f"images that {entry.name} takes: it is made for {entry.image_size} pixels",
            got=f"an image size of {size} ({' '.join(str(error).split())[:100]})",
            fix=f"--image-size {entry.image_size}",
        ) from error
    for module, training in modes.items():
        module.training = training
    return replace(entry, image_size=size)


def is_object(name: str) -> bool:
    """Returns whether a backbone's name is that of a network that was passed as an object."""
    return name.startswith(_OBJECT)


def _by_name(name: str, *, num_classes: int, weights: str | Path) -> Backbone:
    if is_object(name):
        raise DialError(
            wanted="a backbone that dial can build by its name",
            got=f"{name!r}, a network that was passed as an object",
            fix="pass the network: dial.runs.load(folder, backbone=network) for a finished run, "
            "dial.adapt(..., backbone=network) to train",
        )
    try:
        return BACKBONES.create(name, num_classes=num_classes, weights=weights)
    except ModuleNotFoundError as error:
        raise missing_extra(error, "backbones") from error


def _of_object(
    backbone: Backbone | nn.Module, *, num_classes: int, weights: str | Path
) -> Backbone:
    """A copy, so that training leaves the user's network as it is."""
    entry = Backbone.of(backbone) if isinstance(backbone, nn.Module) else backbone
    BACKBONES.check(entry)
    if entry.num_classes != num_classes:
        raise DialError(
            wanted=f"{num_classes} outputs, one for each class, of the classifier "
            f"'{entry.classifier}' of {entry.name}",
            got=str(entry.num_classes),
            fix=f"put a layer with {num_classes} outputs in its place, or name another layer: "
            "Backbone.of(network, classifier=...)",
        )
    name = _OBJECT + entry.name.removeprefix(_OBJECT)
    entry = replace(entry, name=name, network=copy.deepcopy(entry.network))
    if str(weights) in ("auto", "none"):
        return entry
    start = _weights.start(entry.network, weights, classifier=entry.classifier, public=None)
    return replace(entry, **start)
