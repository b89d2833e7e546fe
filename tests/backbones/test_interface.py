from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest
import timm
import torch
from torch import nn
from torchvision import models

import dial
from dial import DialError
from dial.backbones import Backbone
from dial.backbones.interface import find_classifier, find_input


def small(**settings: object) -> Backbone:
    layers = {
        "stem": nn.Conv2d(3, 4, 3),
        "norm": nn.BatchNorm2d(4),
        "body": nn.Conv2d(4, 6, 3),
        "flat": nn.Flatten(),
        "head": nn.Linear(6, 2),
    }
    return Backbone.of(nn.Sequential(OrderedDict(layers)), name="small", **settings)  # type: ignore[arg-type]


def grouped(backbone: Backbone, **settings: float) -> dict[str, tuple[float, float]]:
    groups = backbone.parameter_groups(0.1, weight_decay=0.5, **settings)
    rates = {id(p): (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
    assert len(rates) == sum(len(g["params"]) for g in groups)
    return {n: rates[id(p)] for n, p in backbone.network.named_parameters() if id(p) in rates}


def test_features_are_what_the_classifier_gets() -> None:
    backbone = small()
    x = torch.randn(5, 3, 5, 5)
    with backbone.hidden_features() as features:
        logits = backbone.network(x)
    head = backbone.network.get_submodule("head")
    torch.testing.assert_close(head(features[0]), logits)
    backbone.network(x)
    assert len(features) == 1  # nothing is collected outside


def test_features_are_found_behind_an_aligned_classifier_of_a_joint_batch() -> None:
    backbone = replace(small(), append_after=("head",))
    network = backbone.convert()
    x = torch.randn(6, 3, 5, 5)
    with dial.use_domain(network, {"source": 4, "target": 2}), backbone.hidden_features() as found:
        logits = network(x)
        loss = found[0].mean() + logits.sum()
    assert found[0].shape == (6, backbone.num_features)
    loss.backward()
    assert network.get_submodule("stem").weight.grad is not None
    assert (backbone.num_features, backbone.num_classes) == (6, 2)


def test_features_are_those_after_a_layer_inserted_before_the_classifier() -> None:
    backbone = replace(small(), append_after=("head",), insert_before=("head",))
    network = backbone.convert().train()
    with dial.use_domain(network, "source"), backbone.hidden_features() as found:
        logits = network(torch.randn(6, 3, 5, 5))
    torch.testing.assert_close(found[0].mean(0), torch.zeros(6), atol=1e-5, rtol=0)
    aligned: Any = network.get_submodule("head")
    torch.testing.assert_close(aligned.after(aligned.layer(found[0])), logits)
    assert (backbone.num_features, backbone.num_classes) == (6, 2)
    assert find_classifier(network) == "head"
    rates = grouped(replace(backbone, new=("head",)))
    assert rates["head.0.weight"] == (1.0, 0.0)
    assert rates["head.1.weight"] == (1.0, 0.5)


def test_features_of_tokens_are_averaged_over_them() -> None:
    backbone = Backbone.of(nn.Sequential(nn.Flatten(2), nn.Linear(4, 2)))
    x = torch.rand(5, 3, 2, 2)
    with backbone.hidden_features() as features:
        backbone.network(x)
    torch.testing.assert_close(features[0], x.flatten(2).mean(1))


def test_features_of_a_convolution_are_averaged_over_positions() -> None:
    backbone = Backbone.of(nn.Sequential(nn.ReLU(), nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(1)))
    x = torch.rand(4, 3, 2, 2)
    with backbone.hidden_features() as features:
        backbone.network(x)
    torch.testing.assert_close(features[0], x.mean((2, 3)))


def test_the_hook_goes_also_when_the_pass_fails() -> None:
    backbone = small()
    with pytest.raises(RuntimeError, match="channels"), backbone.hidden_features():
        backbone.network(torch.randn(5, 1, 5, 5))
    assert not backbone.network.get_submodule("head")._forward_pre_hooks


def test_new_layers_learn_faster_and_only_weights_decay() -> None:
    assert grouped(small(new=("head",))) == {
        "stem.weight": (0.1, 0.5),
        "stem.bias": (0.1, 0.0),
        "norm.weight": (0.1, 0.0),
        "norm.bias": (0.1, 0.0),
        "body.weight": (0.1, 0.5),
        "body.bias": (0.1, 0.0),
        "head.weight": (1.0, 0.5),
        "head.bias": (1.0, 0.0),
    }


def test_an_affine_per_domain_does_not_decay() -> None:
    backbone = small()
    backbone.convert(affine="per-domain")
    assert backbone.network.get_parameter("norm.weight").shape == (2, 4)
    decaying = [name for name, (_, decay) in grouped(backbone).items() if decay]
    assert decaying == ["stem.weight", "body.weight", "head.weight"]


def test_biases_of_fine_tuned_layers_may_learn_faster() -> None:
    rates = grouped(small(new=("head",)), bias_rate=2.0, new_rate=5.0)
    assert {n: rate for n, (rate, _) in rates.items()} == {
        "stem.weight": 0.1,
        "stem.bias": 0.2,
        "norm.weight": 0.1,
        "norm.bias": 0.1,
        "body.weight": 0.1,
        "body.bias": 0.2,
        "head.weight": 0.5,
        "head.bias": 0.5,
    }


def test_frozen_parts_are_left_out_and_need_no_gradient() -> None:
    backbone = small(frozen=("stem", "norm"))
    backbone.convert()
    assert sorted(grouped(backbone)) == ["body.bias", "body.weight", "head.bias", "head.weight"]
    learnt = [n for n, p in backbone.network.named_parameters() if p.requires_grad]
    assert sorted(learnt) == ["body.bias", "body.weight", "head.bias", "head.weight"]


def test_an_aligned_new_classifier_is_new_with_its_da_layer() -> None:
    backbone = replace(small(new=("head",)), append_after=("head",))
    backbone.convert()
    rates = grouped(backbone)
    assert rates["head.0.weight"] == (1.0, 0.5)
    assert rates["head.1.weight"] == (1.0, 0.0)


@pytest.mark.parametrize("field", ["append_after", "insert_before", "frozen", "new"])
def test_unknown_names_are_told(field: str) -> None:
    wanted = rf"parts of small in `{field}`, got 'heat'; fix: .*such as head"
    with pytest.raises(DialError, match=wanted):
        small(**{field: ("heat",)})


@pytest.mark.parametrize(
    ("name", "classifier"),
    [("resnet10t", "fc"), ("regnetx_002", "head.fc"), ("mobilenetv3_small_050", "classifier")],
)
def test_timm_knows_its_classifiers(name: str, classifier: str) -> None:
    network = timm.create_model(name, num_classes=7)
    assert find_classifier(network) == classifier
    assert Backbone.of(network).num_classes == 7


@pytest.mark.parametrize(
    ("name", "classifier"),
    [
        ("mobilenet_v3_small", "classifier.3"),
        ("resnet18", "fc"),
        ("shufflenet_v2_x0_5", "fc"),
        ("squeezenet1_1", "classifier.1"),
    ],
)
def test_finds_torchvisions_classifiers(name: str, classifier: str) -> None:
    network = models.get_model(name, weights=None, num_classes=7)
    assert find_classifier(network) == classifier
    assert Backbone.of(network).num_classes == 7


def test_finds_an_aligned_classifier() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert find_classifier(dial.convert(network, append_after=["2"])) == "2"


def test_a_name_is_checked() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    assert find_classifier(network, "0") == "0"
    with pytest.raises(DialError, match=r"as its classifier, got '1', a ReLU; .*such as 0"):
        find_classifier(network, "1")
    with pytest.raises(DialError, match=r"as its classifier, got 'fc'; .*such as 0"):
        find_classifier(network, "fc")
    with pytest.raises(DialError, match=r"of ReLU as its classifier, got None"):
        find_classifier(nn.ReLU())


def test_the_input_is_timms_or_imagenets() -> None:
    network = timm.create_model("tf_efficientnet_lite2", num_classes=7)
    half = (0.5, 0.5, 0.5)
    known = {"image_size": 260, "mean": half, "std": half, "crop_ratio": 0.89}
    assert find_input(network) == known
    assert find_input(nn.Linear(3, 4))["image_size"] == 224
