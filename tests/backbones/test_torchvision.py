from pathlib import Path

import pytest
import torch
from torchvision import models

from dial import backbones


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_auxiliary_classifiers_are_left_out(name: str, tmp_path: Path) -> None:
    public = models.get_model(name, weights=None, init_weights=False, aux_logits=True)
    torch.save(public.state_dict(), tmp_path / "public.pth")
    backbone = backbones.create(
        f"torchvision:{name}", num_classes=5, weights=tmp_path / "public.pth"
    )
    assert backbone.new == ("fc",)
    assert backbone.network.transform_input  # the public weights want another scale
    logits = backbone.network.train()(torch.randn(2, 3, 80, 80))
    assert logits.shape == (2, 5)


def test_the_input_is_that_of_the_public_weights() -> None:
    backbone = backbones.create("torchvision:inception_v3", num_classes=5, weights="none")
    assert (backbone.image_size, round(backbone.crop_ratio, 3)) == (299, round(299 / 342, 3))
    assert backbone.mean == (0.485, 0.456, 0.406)
    assert not backbone.network.transform_input
