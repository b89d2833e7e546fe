"""BN-Inception (Ioffe and Szegedy 2015): a BatchNorm after each of its 69 convolutions."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dial.backbones import _weights
from dial.backbones.interface import Backbone

URL = "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"
FROZEN = ("conv1", "conv2", "inception_3a", "inception_3b", "inception_3c")
# The public weights expect BGR in 0..255 minus this. Images come as RGB in 0..1.
_BGR_MEAN = (104, 117, 128)


class Block(NamedTuple):
    """The widths of an inception block's parallel branches.

    `1x1`; `1x1 -> 3x3`; `1x1 -> 3x3 -> 3x3`; `pool -> 1x1`. A block without the first branch
    halves the image: its last convolutions and its pool have stride 2, without a projection.
    """

    inputs: int
    single: int
    reduce: int
    triple: int
    double_reduce: int
    double: int
    projection: int

    @property
    def stride(self) -> int:
        """The factor by which the image shrinks."""
        return 1 if self.single else 2


BLOCKS = {
    "inception_3a": Block(192, 64, 64, 64, 64, 96, 32),
    "inception_3b": Block(256, 64, 64, 96, 64, 96, 64),
    "inception_3c": Block(320, 0, 128, 160, 64, 96, 0),
    "inception_4a": Block(576, 224, 64, 96, 96, 128, 128),
    "inception_4b": Block(576, 192, 96, 128, 96, 128, 128),
    "inception_4c": Block(576, 160, 128, 160, 128, 160, 128),
    "inception_4d": Block(608, 96, 128, 192, 160, 192, 128),
    "inception_4e": Block(608, 0, 128, 192, 192, 256, 0),
    "inception_5a": Block(1056, 352, 192, 320, 160, 224, 128),
    "inception_5b": Block(1024, 352, 192, 320, 192, 224, 128),
}
_MAX_POOLED = ("inception_3c", "inception_4e", "inception_5b")


class InceptionBN(nn.Module):
    """The network with the names of the public PyTorch port, `(N, 3, H, W)` to `(N, K)`.

    `H` and `W` are multiples of 32. Each convolution has a bias because the port has, although
    its BatchNorm removes it. The port's momentum of 0.9 is Caffe's weight of the *old* value; in
    torch, the same is the default, 0.1.
    """

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, size=7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64)
        self._add("conv2_3x3", 64, 192, size=3)
        for name, block in BLOCKS.items():
            for branch, inputs, outputs, size, stride in _branches(block):
                self._add(f"{name}_{branch}", inputs, outputs, size=size, stride=stride)
        self.last_linear = nn.Linear(1024, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits of a batch of RGB images; the public weights are for BGR: flip."""
        x = self._unit("conv1_7x7_s2", x.flip(1))
        x = F.max_pool2d(x, 3, stride=2, ceil_mode=True)
        x = self._unit("conv2_3x3", self._unit("conv2_3x3_reduce", x))
        x = F.max_pool2d(x, 3, stride=2, ceil_mode=True)
        for name, block in BLOCKS.items():
            x = self.inception(name, block, x)
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.last_linear(x)  # type: ignore[no-any-return]

    def inception(self, name: str, block: Block, x: Tensor) -> Tensor:
        """Returns the output of one block: its branches' outputs, concatenated."""
        outputs = [self._unit(f"{name}_1x1", x)] if block.single else []
        y = self._unit(f"{name}_3x3_reduce", x)
        outputs.append(self._unit(f"{name}_3x3", y))
        y = self._unit(f"{name}_double_3x3_reduce", x)
        y = self._unit(f"{name}_double_3x3_1", y)
        outputs.append(self._unit(f"{name}_double_3x3_2", y))
        if block.stride > 1:
            outputs.append(F.max_pool2d(x, 3, stride=2, ceil_mode=True))
        else:
            pool = F.max_pool2d if name in _MAX_POOLED else F.avg_pool2d
            y = pool(x, 3, stride=1, padding=1)
            outputs.append(self._unit(f"{name}_pool_proj", y))
        return torch.cat(outputs, dim=1)

    def _add(self, name: str, inputs: int, outputs: int, *, size: int = 1, stride: int = 1) -> None:
        convolution = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2)
        self.add_module(name, convolution)
        self.add_module(f"{name}_bn", nn.BatchNorm2d(outputs))

    def _unit(self, name: str, x: Tensor) -> Tensor:
        return F.relu(getattr(self, f"{name}_bn")(getattr(self, name)(x)))


def _branches(block: Block) -> Iterator[tuple[str, int, int, int, int]]:
    """The convolutions of a block: name, inputs, outputs, size, stride."""
    if block.single:
        yield "1x1", block.inputs, block.single, 1, 1
    yield "3x3_reduce", block.inputs, block.reduce, 1, 1
    yield "3x3", block.reduce, block.triple, 3, block.stride
    yield "double_3x3_reduce", block.inputs, block.double_reduce, 1, 1
    yield "double_3x3_1", block.double_reduce, block.double, 3, 1
    yield "double_3x3_2", block.double, block.double, 3, block.stride
    if block.projection:
        yield "pool_proj", block.inputs, block.projection, 1, 1


def create(*, num_classes: int, weights: str | Path) -> Backbone:
    """Returns `inception_bn`; its stem and first three blocks are frozen if pretrained."""
    network = InceptionBN(num_classes)
    start = _weights.start(
        network,
        weights,
        classifier="last_linear",
        public=lambda: _weights.fetch(URL, backbone="inception_bn"),
        rename=_flattened,
    )
    frozen = [name for name, _ in network.named_children() if name.startswith(FROZEN)]
    return Backbone(
        name="inception_bn",
        network=network,
        classifier="last_linear",
        image_size=224,
        mean=tuple(value / 255 for value in reversed(_BGR_MEAN)),
        std=(1 / 255,) * 3,
        frozen=tuple(frozen) if start["pretrained"] else (),
        **start,
    )


def _flattened(state: _weights.State) -> _weights.State:
    """The public file has the tensors of BatchNorms as rows, `(1, C)`."""
    return {
        name: tensor.squeeze(0) if "_bn." in name and tensor.dim() > 1 else tensor
        for name, tensor in state.items()
    }
