import torch

from dial import backbones


def test_is_small_and_takes_grey_images() -> None:
    backbone = backbones.create("digits_cnn", num_classes=10)
    assert sum(p.numel() for p in backbone.network.parameters()) < 150_000
    assert backbone.network(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    assert (backbone.image_size, len(backbone.mean), len(backbone.std)) == (28, 1, 1)


def test_automatic_weights_are_random_ones() -> None:
    assert not backbones.create("digits_cnn").pretrained


def test_aligns_its_logits_by_default() -> None:
    assert backbones.create("digits_cnn").append_after == ("classifier",)
