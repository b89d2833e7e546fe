from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

import dial
from dial import backbones


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> torch.nn.Module:
    """Weights where a download would have put them."""
    network = timm.create_model("resnet10t", num_classes=1000)
    (tmp_path / "checkpoints").mkdir()
    save_file(network.state_dict(), tmp_path / "checkpoints" / "resnet10t.c3_in1k.safetensors")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    return network  # type: ignore[no-any-return]


def test_public_weights_are_taken_from_torchs_cache(public: torch.nn.Module) -> None:
    backbone = backbones.create("timm:resnet10t", num_classes=5)
    state, wanted = backbone.network.state_dict(), public.state_dict()
    assert backbone.pretrained
    assert backbone.new == ("fc",)
    assert backbone.num_classes == 5
    assert all(torch.equal(state[n], wanted[n]) for n in wanted if not n.startswith("fc."))
    assert torch.equal(dial.build("timm:resnet10t", 1000).fc.weight, wanted["fc.weight"])  # type: ignore[union-attr, arg-type]


def test_a_tag_chooses_other_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", _fail)
    with pytest.raises(dial.DialError, match=r"resnet18\.tv_in1k\.safetensors, got no download"):
        dial.build("timm:resnet18.tv_in1k")


def test_a_network_without_public_weights_says_so() -> None:
    with pytest.raises(dial.DialError, match=r"public weights of timm:ghostnet_050, got none"):
        dial.build("timm:ghostnet_050")


def _fail(*_: object, **__: object) -> None:
    raise OSError("no network")
