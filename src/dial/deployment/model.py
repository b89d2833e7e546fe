"""Finished predictors on disk: tensors and a description, no code."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from dial import tensorfiles
from dial.backbones import Backbone, create
from dial.data.transforms import Preprocessing
from dial.layers.calibration import to_network
from dial.layers.conversion import convert, replace_modules
from dial.layers.folding import fold

VERSION = 2


@dataclass(frozen=True)
class Model:
    """A plain network with the names of its classes and how its images are made."""

    network: nn.Module
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    backbone: str
    append_after: tuple[str, ...] = ()
    """Layers that have a BatchNorm of ours behind them."""

    def describe(self) -> dict[str, Any]:
        """What one has to know to use the network, for JSON."""
        return {
            "backbone": self.backbone,
            "classes": self.classes,
            "preprocessing": self.preprocessing.to_dict(),
        }

    def original(self) -> nn.Module:
        """A copy with the backbone's own layers alone: what we put behind some is multiplied in."""
        network = copy.deepcopy(self.network).eval()
        merged = {network.get_submodule(name): name for name in self.append_after}
        return replace_modules(network, {pair: _merge(pair) for pair in merged})


def save(path: Path, model: Model) -> None:
    """Write a predictor as safetensors; what describes it stands in the file's metadata."""
    tensors = {name: t.detach().cpu() for name, t in model.network.state_dict().items()}
    about = {"version": VERSION, **model.describe(), "append_after": model.append_after}
    tensorfiles.save(path, tensors, about=about)


def load(path: Path) -> Model:
    """Read a predictor back.

    Raises:
        DialError: no such file, a damaged one, or one of another version.
    """
    fix = "finish the run (dial adapt ... --resume), or make it again with this version of dial"
    about, tensors = tensorfiles.load(path, wanted="a finished model", version=VERSION, fix=fix)
    classes = tuple(about["classes"])
    backbone = create(about["backbone"], num_classes=len(classes), weights="none")
    append_after = tuple(about["append_after"])
    network = rebuild(backbone, tensors, append_after=append_after)
    preprocessing = Preprocessing(**about["preprocessing"])
    return Model(network, classes, preprocessing, about["backbone"], append_after)


def rebuild(
    backbone: Backbone, tensors: dict[str, Tensor], *, append_after: tuple[str, ...]
) -> nn.Module:
    """The plain network that `fold(..., fuse=False)` makes of a backbone, with these tensors."""
    network = backbone.network
    if append_after:
        network = fold(convert(network, append_after=append_after), fuse=False)
    network.load_state_dict(tensors)
    return network.eval()


@torch.no_grad()
def predict(network: nn.Module, batches: Any) -> Tensor:
    """Logits `(N, K)` of all images, on the CPU, in eval mode."""
    network.eval()
    return torch.cat([network(to_network(images, network)).float().cpu() for images in batches])


def _merge(pair: nn.Module) -> nn.Module:
    """A layer with the BatchNorm behind it multiplied in."""
    assert isinstance(pair, nn.Sequential)  # noqa: S101 - as `fold` leaves them
    layer: Any = pair[0]
    fuse: Any = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
    return fuse(layer, pair[1])  # type: ignore[no-any-return]
