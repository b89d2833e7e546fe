"""A small network that methods are tried on."""

from torch import nn

from dial.backbones import Backbone


def backbone() -> Backbone:
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 4),
    )
    return Backbone.of(network, image_size=8, append_after=("5",))
