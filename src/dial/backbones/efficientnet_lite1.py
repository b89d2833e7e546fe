"""EfficientNet-Lite1 with ImageNet weights from pip, 240 px: a little larger and slower."""

from functools import partial

from dial.backbones import efficientnet_lite0

create = partial(efficientnet_lite0.create, number=1)
