"""EfficientNet-Lite2 with ImageNet weights from pip, 260 px: the largest that installs from pip."""

from functools import partial

from dial.backbones import efficientnet_lite0

create = partial(efficientnet_lite0.create, number=2)
