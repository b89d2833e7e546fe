"""A small network for the embedded digits: three convolutions with BatchNorm, from scratch."""

from pathlib import Path

from torch import Tensor, nn

from dial.backbones import _weights
from dial.backbones.interface import Backbone


class DigitsCNN(nn.Module):
    """Three blocks of convolution, BatchNorm, ReLU and pool, `(N, 1, 28, 28)` to `(N, K)`."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.block1 = _block(1, 32)
        self.block2 = _block(32, 64)
        self.block3 = _block(64, 128)
        self.classifier = nn.Linear(128 * 3 * 3, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logits of a batch of images."""
        x = self.block3(self.block2(self.block1(x)))
        return self.classifier(x.flatten(1))  # type: ignore[no-any-return]


def create(*, num_classes: int, weights: str | Path) -> Backbone:
    """Returns `digits_cnn`; there are no public weights, so `auto` means random ones."""
    network = DigitsCNN(num_classes)
    start = _weights.start(network, weights, classifier="classifier", public=None)
    return Backbone(
        name="digits_cnn",
        network=network,
        classifier="classifier",
        image_size=28,
        crop_ratio=0.875,  # random crops, as for photographs
        distort=0.1,  # that of French et al. 2018 for digits
        mean=(0.0,),  # so a digit's background is 0, like the convolutions' padding
        std=(1.0,),
        append_after=("classifier",),
        **start,
    )


def _block(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(
        convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), nn.MaxPool2d(2)
    )
