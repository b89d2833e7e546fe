import pytest
import timm
from torch import nn
from torchvision import models

from dial import DialError, convert
from dial.backbones import Backbone
from dial.backbones._discovery import find_classifier, find_input


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
    assert find_classifier(convert(network, append_after=["2"])) == "2"


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
