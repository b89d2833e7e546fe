from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision import models

import dial
from dial import backbones
from dial.backbones.alexnet import AlexNet


@pytest.fixture(scope="module")
def public() -> nn.Module:
    return models.get_model("alexnet", weights=None).eval()  # type: ignore[no-any-return]


@pytest.fixture
def public_file(public: nn.Module, tmp_path: Path) -> Path:
    torch.save(public.state_dict(), tmp_path / "alexnet.pth")
    return tmp_path / "alexnet.pth"


def test_is_torchvisions_network_before_conversion(public: nn.Module, public_file: Path) -> None:
    network = dial.build("alexnet", num_classes=1000, weights=public_file).eval()
    assert sum(p.numel() for p in network.parameters()) == 61_100_840
    x = torch.randn(2, 3, 96, 96)
    with torch.no_grad():
        torch.testing.assert_close(network(x), public(x))


def test_the_new_last_layer_is_the_papers(public: nn.Module, public_file: Path) -> None:
    backbone = backbones.create("alexnet", num_classes=31, weights=public_file)
    state = backbone.network.state_dict()
    assert "fc8.bias" not in state
    assert state["fc8.weight"].shape == (31, 4096)
    assert abs(float(state["fc8.weight"].std()) - 0.01) < 1e-4
    assert backbone.new == ("fc8",)
    assert torch.equal(state["fc7.weight"], public.state_dict()["classifier.4.weight"])


def test_has_da_layers_behind_fully_connected_layers_only_and_no_dropout() -> None:
    backbone = backbones.create("alexnet", num_classes=31, weights="none")
    network = backbone.convert()
    layers = {n: m for n, m in network.named_modules() if isinstance(m, dial.DomainAlignment)}
    assert {n: m.num_features for n, m in layers.items()} == {
        "fc6.1": 4096,
        "fc7.1": 4096,
        "fc8.1": 31,
    }
    assert not any(isinstance(m, nn.Dropout) for m in network.modules())


def test_da_layers_come_before_the_relu() -> None:
    network = dial.convert(AlexNet(5), append_after=["fc6"]).train()
    seen: list[torch.Tensor] = []
    network.get_submodule("fc7").register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(torch.randn(16, 3, 64, 64))
    passed = seen[0].detach()
    assert float(passed.min()) == 0
    # Of zero mean before the ReLU: about half of each feature's values pass.
    assert 0.3 < float((passed > 0).float().mean()) < 0.7
