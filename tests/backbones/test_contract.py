"""What every backbone must do, registered here or named in timm and torchvision."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dial
from dial import backbones, losses
from dial.backbones import Backbone

from ..conftest import slow

FAMILIES = ("timm", "torchvision")
REGISTERED = [name for name in backbones.BACKBONES.names() if name not in FAMILIES]
NAMED = [
    "timm:efficientnet_b0",
    "timm:ghostnet_050",
    "timm:inception_v3",
    "timm:mobilenetv3_small_050",
    "timm:regnetx_002",
    "timm:resnet10t",
    "torchvision:densenet121",
    "torchvision:mobilenet_v2",
    "torchvision:shufflenet_v2_x0_5",
    "torchvision:squeezenet1_1",
    slow("torchvision:vgg11_bn"),
]
CLASSES = 5
SOURCE, TARGET = 4, 3


def images(backbone: Backbone, count: int) -> torch.Tensor:
    """Small ones: what matters here does not depend on their size."""
    size = {"timm:inception_v3": 80, "alexnet": 64}.get(backbone.name, 32)
    size = min(size, backbone.image_size)
    return torch.randn(count, len(backbone.mean), size, size)


def converted(name: str) -> Backbone:
    backbone = backbones.create(name, num_classes=CLASSES, weights="none")
    backbone.convert("anchored")
    return backbone


@pytest.mark.parametrize("name", REGISTERED + NAMED)
def test_trains_and_folds_to_an_equal_plain_network(name: str) -> None:
    backbone = converted(name)
    assert backbone.name == name  # a finished model is rebuilt by it
    network = backbone.network.train()
    groups = backbone.parameter_groups(1e-3, weight_decay=5e-4)
    optimizer = torch.optim.SGD(groups, lr=1e-3, momentum=0.9)

    x = images(backbone, SOURCE + TARGET)
    with (
        backbone.hidden_features() as features,
        dial.use_domain(network, {"source": SOURCE, "target": TARGET}),
    ):
        logits = network(x)
    assert logits.shape == (SOURCE + TARGET, CLASSES)
    assert [f.shape for f in features] == [(SOURCE + TARGET, backbone.num_features)]

    labels = torch.arange(SOURCE) % CLASSES
    loss = F.cross_entropy(logits[:SOURCE], labels) + 0.2 * losses.entropy(logits[SOURCE:])
    loss.backward()
    trained = {p for group in groups for p in group["params"]}
    assert trained == {p for p in network.parameters() if p.requires_grad}
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
    optimizer.step()

    dial.calibrate(network, [images(backbone, 8)], "target")
    network.eval()
    plain = dial.fold(network, "target")
    assert not [m for m in plain.modules() if type(m).__module__.startswith("dial.layers")]
    with torch.no_grad():
        wanted, got = network(x), plain(x)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


@pytest.mark.parametrize("name", REGISTERED)
def test_every_batch_norm_becomes_a_da_layer(name: str) -> None:
    backbone = backbones.create(name, num_classes=CLASSES, weights="none")
    norms = sum(isinstance(m, nn.BatchNorm2d) for m in backbone.network.modules())
    network = backbone.convert()
    layers = [m for m in network.modules() if isinstance(m, dial.DomainAlignment)]
    assert len(layers) == norms + len(backbone.append_after) > 0


@pytest.mark.parametrize("name", REGISTERED)
def test_describes_itself_in_one_line(name: str) -> None:
    assert 20 < len(backbones.describe()[name]) < 100
