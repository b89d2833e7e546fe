"""Finished predictors on disk: tensors and a description, no code."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from dial import files
from dial.backbones import Backbone, classifier_layer, create
from dial.backbones.interface import find_classifier
from dial.data.transforms import Preprocessing
from dial.errors import DialError

VERSION = 3
_WITH_PAIRS = 2  # the former version, in which a BatchNorm followed the layers in `append_after`
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, which no file can hold
_NORMS: dict[int, Any]  # by the dimensions of the weight of the layer beside it
_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


class About(TypedDict):
    """What the file says about its tensors."""

    backbone: str
    classes: list[str]
    preprocessing: Preprocessing
    append_after: NotRequired[list[str]]


@dataclass(frozen=True)
class Model:
    """A plain network with the names of its classes and the preprocessing of its images."""

    network: nn.Module
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    backbone: str
    """The name that builds the network; `object:NAME` for one that was passed as an object."""

    @property
    def classifier(self) -> str:
        """The name of the layer that computes the logits."""
        return find_classifier(self.network)

    @property
    def num_features(self) -> int:
        """The number of that layer's inputs."""
        layer: Any = classifier_layer(self.network, self.classifier)
        return int(layer.weight.shape[1])

    def describe(self) -> dict[str, Any]:
        """Returns what one has to know to use the network, for JSON."""
        return {
            "backbone": self.backbone,
            "classes": self.classes,
            "preprocessing": self.preprocessing.to_dict(),
        }


def save(path: Path, model: Model) -> None:
    """Write a predictor as safetensors; the file's metadata describes it."""
    about = {"version": VERSION, **model.describe()}
    files.save_tensors(path, state(model.network), about=about)


def load(path: Path, *, backbone: Backbone | nn.Module | None = None) -> Model:
    """Returns a predictor from its file, as `load_backbone` does."""
    return load_backbone(path, backbone=backbone)[0]


def load_backbone(
    path: Path, *, backbone: Backbone | nn.Module | None = None
) -> tuple[Model, Backbone]:
    """Returns a predictor from its file, and the record of its network, which they share.

    Args:
        path: of the file.
        backbone: the network that was adapted, where it was passed as an object; it is copied.

    Raises:
        DialError: no such file, a damaged one, one of another version, or one of another network.
    """
    fix = "finish the run (dial adapt ... --resume), or repeat it with this version of dial"
    about, tensors = files.load_tensors(
        path, wanted="a finished model", version=VERSION, former=(_WITH_PAIRS,), fix=fix, kind=About
    )
    name, classes = about["backbone"], tuple(about["classes"])
    if len(set(classes)) < len(classes) or _SURROGATE.search("".join(classes)):
        got = f"{len(classes)}, of which some are equal or no text"
        raise DialError(wanted=f"the names of different classes in {path}", got=got, fix=fix)
    preprocessing = Preprocessing(**about["preprocessing"])
    entry = create(
        name if backbone is None else backbone,
        num_classes=len(classes),
        weights="none",
        image_size=preprocessing.size,
    )
    network = entry.network
    try:
        _insert_matrices(network, tensors)
        _add_norms(network, tensors)
        _fill(network, tensors)
        for pair in about.get("append_after", ()):
            _merge(network, pair)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise DialError(
            wanted=f"in {path} the tensors of {entry.name}",
            got=f"others ({' '.join(str(error).split())[:200]})",
            fix="pass the network that was adapted: dial.runs.load(folder, backbone=network)",
        ) from error
    return Model(network.eval(), classes, preprocessing, name), entry


def state(network: nn.Module) -> dict[str, Tensor]:
    """Returns a network's tensors for a file: on the CPU, each with memory of its own."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in network.state_dict().items()
    }


@torch.no_grad()
def predict(network: nn.Module, batches: Iterable[Tensor]) -> Tensor:
    """Returns the logits `(N, K)` of all images, on the CPU, computed in eval mode."""
    network.eval()
    like = next(network.parameters())  # for the device and the precision
    return torch.cat([network(images.to(like)).float().cpu() for images in batches])


def _add_norms(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put BatchNorms around layers where the file has them: `0` and `1` of a layer's name.

    They were DA-layers that could not be merged into the layer, or in the former version were not.
    """
    known = {name for name, _ in network.named_modules()}
    statistics = [n.split(".")[:-1] for n in tensors if n.endswith(".running_mean")]
    norms = [place for place in statistics if ".".join(place) not in known]
    for name in dict.fromkeys(".".join(place[:-1]) for place in norms):
        layer: Any = network.get_submodule(name)
        parts: list[nn.Module] = [layer]
        for index in sorted(int(place[-1]) for place in norms if ".".join(place[:-1]) == name):
            channels = len(tensors[f"{name}.{index}.running_mean"])
            parts.insert(index, _NORMS[layer.weight.dim()](channels))
        _replace(network, layer, nn.Sequential(*parts))


def _merge(network: nn.Module, name: str) -> None:
    """Merge the BatchNorm after a layer, of a file of the former version, into the layer."""
    pair: Any = network.eval().get_submodule(name)
    layer, norm = pair
    fuse: Any = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
    _replace(network, pair, fuse(layer, norm))


def _replace(network: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a module in the place of another, wherever that is used."""
    for parent in list(network.modules()):
        for name, child in parent._modules.items():
            if child is old and parent is not new:
                parent._modules[name] = new


def _insert_matrices(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put a layer before each BatchNorm that has one in the tensors: a folded whitening."""
    kinds: dict[int, Any] = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}
    for name, norm in list(network.named_modules()):
        if isinstance(norm, _BatchNorm) and f"{name}.1.running_var" in tensors:
            weight = tensors[f"{name}.0.weight"]
            channels, inputs = weight.shape[:2]
            if weight.dim() in kinds:
                groups = channels // inputs
                layer = kinds[weight.dim()](channels, channels, 1, groups=groups, bias=False)
            else:
                layer = nn.Linear(channels, channels, bias=False)
            _replace(network, norm, nn.Sequential(layer, norm))


def _fill(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Load tensors, also those that folding added where a layer has none, such as a bias."""
    for name, tensor in tensors.items():
        module, _, key = name.rpartition(".")
        layer = network.get_submodule(module)
        if key in layer._parameters and layer._parameters[key] is None:
            layer._parameters[key] = nn.Parameter(tensor)
        elif key in layer._buffers and layer._buffers[key] is None:
            layer._buffers[key] = tensor
    network.load_state_dict(tensors)
