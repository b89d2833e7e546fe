"""ResNet-50 as He et al. (2016) published it, 224 px; its weights are passed as a file."""

from functools import partial
from pathlib import Path

from torch import nn

from dial.backbones import _weights
from dial.backbones.interface import Backbone
from dial.errors import DialError
from dial.torchvision_guard import prepare_torchvision

EARLY = ("conv1", "bn1", "layer1", "layer2")
"""The stem and the first two stages, frozen if pretrained: up to an eighth of the resolution, as
in EfficientNet-Lite."""
# The weights expect BGR in 0..255 minus this. Images come as RGB in 0..1.
_BGR_MEAN = (103.939, 116.779, 123.68)


def create(*, num_classes: int, weights: str | Path) -> Backbone:
    """Returns `resnet50_v1`: torchvision's ResNet-50 with the original strides.

    A stage halves the image in its first convolution, `1x1`; torchvision's does in the second.
    BatchNorm's eps is 1e-3.
    """
    prepare_torchvision()
    from torchvision import models  # slow, and not needed to list the entries

    norm = partial(nn.BatchNorm2d, eps=1e-3)
    network = models.resnet50(num_classes=num_classes, norm_layer=norm)
    for stage in (network.layer2, network.layer3, network.layer4):
        first, second = stage[0].conv1, stage[0].conv2
        first.stride, second.stride = second.stride, first.stride
    start = _weights.start(
        network,
        weights,
        classifier="fc",
        public=_no_public_file,
        rename=dict if _is_finished_model(Path(weights)) else _for_rgb,
    )
    return Backbone(
        name="resnet50_v1",
        network=network,
        classifier="fc",
        image_size=224,
        mean=tuple(value / 255 for value in reversed(_BGR_MEAN)),
        std=(1 / 255,) * 3,
        frozen=EARLY if start["pretrained"] else (),
        **start,
    )


def _for_rgb(state: _weights.State) -> _weights.State:
    """The first convolution with its input channels in reverse takes RGB where it took BGR."""
    return {
        name: tensor.flip(1) if name == "conv1.weight" and tensor.dim() > 1 else tensor
        for name, tensor in state.items()
    }


def _is_finished_model(path: Path) -> bool:
    """Whether a file is a run's `model.safetensors`, whose first convolution takes RGB already."""
    if path.suffix != ".safetensors" or not path.is_file():
        return False
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return "dial" in (file.metadata() or {})
    except SafetensorError:
        return False  # reading its tensors says what is wrong


def _no_public_file() -> Path:
    raise DialError(
        wanted="the weights of resnet50_v1",
        got="none: no package carries them",
        fix="pass them with --weights FILE, in torchvision's names for BGR in 0..255; "
        "--weights none starts from random weights",
    )
