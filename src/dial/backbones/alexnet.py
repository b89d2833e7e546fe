"""AlexNet as the paper modifies it: DA-layers after fc6, fc7 and the logits, and no dropout."""

from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from dial.backbones import _weights
from dial.backbones.interface import IMAGENET_MEAN, IMAGENET_STD, Backbone

URL = "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth"
PUBLIC_CLASSES = 1000
FULLY_CONNECTED = ("fc6", "fc7", "fc8")
_TORCHVISION_NAMES = {
    "features.0": "conv1",
    "features.3": "conv2",
    "features.6": "conv3",
    "features.8": "conv4",
    "features.10": "conv5",
    "classifier.1": "fc6",
    "classifier.4": "fc7",
    "classifier.6": "fc8",
}


class AlexNet(nn.Module):
    """Five convolutions and three fully connected layers, `(N, 3, H, W)` to `(N, K)`.

    With 1000 classes it is the public network, including the bias of the last layer. For other
    classes the last layer is the paper's new one: no bias (its DA-layer would remove it),
    Gaussian with deviation 0.01.
    """

    def __init__(self, num_classes: int = PUBLIC_CLASSES) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 11, stride=4, padding=2)
        self.conv2 = nn.Conv2d(64, 192, 5, padding=2)
        self.conv3 = nn.Conv2d(192, 384, 3, padding=1)
        self.conv4 = nn.Conv2d(384, 256, 3, padding=1)
        self.conv5 = nn.Conv2d(256, 256, 3, padding=1)
        self.fc6 = nn.Linear(256 * 6 * 6, 4096)
        self.fc7 = nn.Linear(4096, 4096)
        self.fc8 = nn.Linear(4096, num_classes, bias=num_classes == PUBLIC_CLASSES)
        if num_classes != PUBLIC_CLASSES:
            nn.init.normal_(self.fc8.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits of a batch of images."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 3, stride=2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 3, stride=2)
        x = F.relu(self.conv3(x))
        x = F.relu(self.conv4(x))
        x = F.max_pool2d(F.relu(self.conv5(x)), 3, stride=2)
        x = F.adaptive_avg_pool2d(x, 6).flatten(1)
        x = F.relu(self.fc6(x))
        x = F.relu(self.fc7(x))
        return self.fc8(x)  # type: ignore[no-any-return]


def create(*, num_classes: int, weights: str | Path) -> Backbone:
    """Returns `alexnet`; nothing is frozen by default (AutoDIAL froze conv1 to conv5)."""
    network = AlexNet(num_classes)
    start = _weights.start(
        network,
        weights,
        classifier="fc8",
        public=lambda: _weights.fetch(URL, backbone="alexnet"),
        rename=_renamed,
    )
    return Backbone(
        name="alexnet",
        network=network,
        classifier="fc8",
        image_size=227,
        crop_ratio=227 / 256,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        append_after=FULLY_CONNECTED,
        **start,
    )


def _renamed(state: _weights.State) -> _weights.State:
    """From torchvision's names, by position, to ours, by layer."""
    split = {name: name.rpartition(".") for name in state}
    return {
        f"{_TORCHVISION_NAMES.get(layer, layer)}.{tensor}": state[name]
        for name, (layer, _, tensor) in split.items()
    }
