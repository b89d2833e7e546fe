import pytest
from torch import nn

import dial
from dial import DialError, backbones


def test_build_is_public_and_gives_the_network_before_conversion() -> None:
    network = dial.build("digits_cnn", num_classes=10)
    assert isinstance(network, nn.Module)
    assert not any(isinstance(m, dial.DomainAlignment) for m in network.modules())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alexnett", r"one of the backbones alexnet, .*got 'alexnett'"),
        ("timm", r"such as timm:NAME, got 'timm'; fix: put the network's name"),
        ("torchvision:", r"such as torchvision:NAME, got 'torchvision:'"),
        ("alexnet:bn", r"such as alexnet, got 'alexnet:bn'; fix: leave out ':bn'"),
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
