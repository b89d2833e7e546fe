"""Networks with public weights know what is in real photographs, at every stage of adaptation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import dial
from dial import backbones
from dial.backbones import Backbone

IMAGENET = {"back_pack": 414, "mouse": 673, "mug": 504}
MORE = IMAGENET | {"keyboard": 508}


def photographs(
    folder: Path, backbone: Backbone, classes: dict[str, int], count: int | None = None
) -> tuple[Tensor, Tensor]:
    """Resized, cropped and normalised as the network wants them; and their ImageNet classes."""
    images, labels = [], []
    for name, label in classes.items():
        files = sorted((folder / name).glob("*.jpg"))[:count]
        images += [_prepared(file, backbone) for file in files]
        labels += [label] * len(files)
    return torch.stack(images), torch.tensor(labels)


def _prepared(file: Path, backbone: Backbone) -> Tensor:
    size = backbone.image_size
    with Image.open(file) as image:
        factor = round(size / backbone.crop_ratio) / min(image.size)
        width, height = (round(side * factor) for side in image.size)
        resized = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - size) // 2, (height - size) // 2
    pixels = np.asarray(resized.crop((left, top, left + size, top + size))) / 255
    normalised = (pixels - np.array(backbone.mean)) / np.array(backbone.std)
    return torch.from_numpy(normalised).permute(2, 0, 1).float()


@torch.no_grad()
def top_five(network: nn.Module, x: Tensor, labels: Tensor) -> tuple[float, Tensor]:
    logits = torch.cat([network.eval()(part) for part in x.split(16)])
    return float((logits.topk(5).indices == labels[:, None]).any(1).float().mean()), logits


def beside_the_data(office31: Path, name: str) -> Path:
    """A file of weights that this machine may have."""
    weights = office31.parents[1] / "weights" / name
    if not weights.is_file():
        pytest.skip(f"no {name} in the folder of weights beside the data")
    return weights


@pytest.mark.slow
@pytest.mark.parametrize("name", ["efficientnet_lite0", "torchvision:mobilenet_v2"])
def test_the_right_class_is_in_the_top_five(name: str, office31: Path) -> None:
    weights: str | Path = "auto"
    if name == "torchvision:mobilenet_v2":
        weights = beside_the_data(office31, "mobilenet_v2-b0353104.pth")
    backbone = backbones.create(name, num_classes=1000, weights=weights)
    x, labels = photographs(office31 / "webcam/images", backbone, IMAGENET)
    assert len(x) > 80

    accuracy, before = top_five(backbone.network, x, labels)
    assert accuracy >= 0.7
    converted = backbone.convert("anchored")
    accuracy, after = top_five(converted, x, labels)
    assert accuracy >= 0.7
    torch.testing.assert_close(after, before, rtol=0, atol=1e-3)
    accuracy, folded = top_five(dial.fold(converted), x, labels)
    assert accuracy >= 0.7
    torch.testing.assert_close(folded, before, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_the_original_resnet_has_the_right_class_in_its_top_five(office31: Path) -> None:
    """For 23 of these 24 images, as the source of the weights says."""
    weights = beside_the_data(office31, "resnet50_v1.safetensors")
    backbone = backbones.create("resnet50_v1", num_classes=1000, weights=weights)
    x, labels = photographs(office31 / "webcam/images", backbone, MORE, count=6)
    accuracy, before = top_five(backbone.network, x, labels)
    assert accuracy * 24 == pytest.approx(23)
    converted = backbone.convert("anchored")
    _, after = top_five(converted, x[::6], labels[::6])
    torch.testing.assert_close(after, before[::6], rtol=0, atol=1e-3)
