"""The digits of the examples: 5,000 of MNIST and 1,797 scanned ones, both installed with dial."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dial.data.datasets import open_domain
from dial.data.domain import ImageArray, LabelledDomain
from dial.torchvision_guard import prepare_torchvision

prepare_torchvision()  # for what imports torchvision; see docs/own-loop.md


def load(domain: str) -> tuple[Tensor, Tensor]:
    """Returns images `(N, 1, 28, 28)` in [0, 1] and labels `(N,)` of `mnist` or `optdigits`."""
    digits = open_domain(f"digits:{domain}")
    assert isinstance(digits, LabelledDomain)  # noqa: S101 - both domains have labels
    assert isinstance(digits.images, ImageArray)  # noqa: S101 - and are in memory
    images = torch.from_numpy(digits.images.pixels).permute(0, 3, 1, 2) / 255
    return images, torch.from_numpy(digits.labels.indices)


def network() -> nn.Sequential:
    """Returns three convolutions with BatchNorm, and a classifier of ten digits."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 9, 10))


def distort(images: Tensor) -> Tensor:
    """Returns images of the same digits, stretched, turned and sheared at random."""
    maps = torch.eye(2, 3) + 0.1 * torch.randn(len(images), 2, 3)
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
