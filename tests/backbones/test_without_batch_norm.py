"""Networks without BatchNorm: DA-layers around the classifier, by themselves, and none inside."""

import copy
from functools import cache
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import dial
from dial import DialError, backbones, losses
from dial.backbones import Backbone

CLASSES = 3
SIZES = {
    "timm:convnext_atto": 32,
    "mixer": 32,
    "timm:swin_tiny_patch4_window7_224": 32,
    "timm:vit_small_patch14_dinov2": 28,
    "timm:vit_tiny_patch16_224": 32,
    "torchvision:squeezenet1_1": 32,
    "own": 8,
}
NORMS = (nn.LayerNorm, nn.GroupNorm)


class Transformer(nn.Module):
    """A transformer of one's own: patches of 4 pixels, one block, the mean token's class."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.last, self.head = nn.LayerNorm(8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        inside = self.norm(tokens)
        tokens = tokens + self.attention(inside, inside, inside, need_weights=False)[0]
        tokens = tokens + self.mlp(tokens)
        return self.head(self.last(tokens).mean(1))  # type: ignore[no-any-return]


@cache
def original(name: str) -> Backbone:
    """In float64, so that the algebra is seen and not the conditioning of untrained networks."""
    torch.manual_seed(0)
    size = SIZES[name]
    if name == "own":
        backbone = Backbone.of(Transformer(), image_size=size)
    elif name == "mixer":  # it cannot be resized later
        network = timm.create_model("mixer_s32_224", num_classes=CLASSES, img_size=size)
        backbone = Backbone.of(network, image_size=size)
    else:
        backbone = backbones.create(name, num_classes=CLASSES, weights="none", image_size=size)
    classifier: Any = backbones.classifier_layer(backbone.network, backbone.classifier)
    nn.init.normal_(classifier.weight)  # some begin with zeros
    backbone.network.double()
    return backbone


def images(name: str, count: int) -> Tensor:
    return torch.randn(count, 3, SIZES[name], SIZES[name], dtype=torch.float64)


def norms(network: nn.Module) -> list[nn.Module]:
    return [module for module in network.modules() if isinstance(module, NORMS)]


@pytest.mark.parametrize("name", SIZES)
def test_is_aligned_around_its_classifier_and_folds_to_its_own_architecture(name: str) -> None:
    backbone = copy.deepcopy(original(name))
    classifier = (backbone.classifier,)
    assert backbone.insert_before == backbone.append_after == classifier
    keys = backbone.network.state_dict().keys()
    before = norms(backbone.network)
    network = backbone.convert("normal").train()
    for module in network.modules():  # joint and separate passes differ by random numbers only
        if isinstance(module, nn.Dropout) or type(module).__name__ == "DropPath":
            module.eval()
    assert norms(network) == before
    layers = {n: m for n, m in network.named_modules() if isinstance(m, dial.DomainAlignment)}
    assert list(layers) == [f"{classifier[0]}.0", f"{classifier[0]}.2"]

    x = images(name, 5)
    with (
        dial.use_domain(network, {"source": 3, "target": 2}),
        backbone.hidden_features() as features,
    ):
        logits = network(x)
    assert features[0].shape == (5, backbone.num_features)
    zero = torch.zeros(backbone.num_features, dtype=torch.float64)
    torch.testing.assert_close(features[0][:3].mean(0), zero, atol=1e-8, rtol=0)
    parts = []
    for domain, part in (("source", x[:3]), ("target", x[3:])):
        with dial.use_domain(network, domain):
            parts.append(network(part))
    torch.testing.assert_close(torch.cat(parts), logits, atol=1e-8, rtol=1e-8)
    losses.entropy(logits).backward()
    gradients = [p.grad for p in layers[f"{classifier[0]}.0"].parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)

    dial.calibrate(network, [x[3:]], "target")
    network.eval()
    with torch.no_grad():
        expected = network(x)
        for fuse in (True, False):
            plain = dial.fold(network, "target", fuse=fuse)
            assert not [m for m in plain.modules() if type(m).__module__.startswith("dial.layers")]
            assert plain.state_dict().keys() == keys
            scale = float(expected.abs().max())
            torch.testing.assert_close(plain(x), expected, atol=1e-8 * scale, rtol=0)


def test_what_is_given_is_kept() -> None:
    network = Transformer()
    given = Backbone.of(network, append_after=("patches",))
    assert (given.append_after, given.insert_before) == (("patches",), ())
    given = Backbone.of(network, insert_before=("head",))
    assert (given.append_after, given.insert_before) == ((), ("head",))
    created = backbones.create(network, num_classes=CLASSES, align_logits=False)
    assert (created.append_after, created.insert_before) == ((), ("head",))
    named = backbones.create(network, num_classes=CLASSES, append_after=["mlp.1", "head"])
    assert (named.append_after, named.insert_before) == (("mlp.1", "head"), ("head",))
    layers = [m for m in named.convert().modules() if isinstance(m, dial.DomainAlignment)]
    assert [layer.num_features for layer in layers] == [16, 8, CLASSES]
    assert named.network(torch.randn(4, 3, 8, 8)).shape == (4, CLASSES)


def test_networks_with_batch_norm_are_as_they_were() -> None:
    backbone = backbones.create("timm:test_resnet", num_classes=CLASSES, weights="none")
    assert (backbone.append_after, backbone.insert_before) == ((), ())
    converted = dial.convert(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2)))
    assert Backbone.of(converted).insert_before == ()


def test_float32_is_close_too() -> None:
    backbone = backbones.create("timm:test_vit", num_classes=CLASSES, weights="none", image_size=32)
    network = backbone.convert("normal").train()
    x = torch.randn(8, 3, 32, 32)
    network(x)
    dial.calibrate(network, [x], "target")
    with torch.no_grad():
        expected, found = network.eval()(x), dial.fold(network, fuse=False)(x)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_network_with_two_classifiers_is_refused() -> None:
    wanted = r"one classifier in VisionTransformerDistilled, got 2, head, head_dist; fix: choose"
    with pytest.raises(DialError, match=wanted):
        backbones.create("timm:deit_tiny_distilled_patch16_224", num_classes=3, weights="none")


def test_networks_for_one_size_are_resized_where_timm_can() -> None:
    backbone = backbones.create("timm:test_vit", num_classes=CLASSES, weights="none", image_size=48)
    assert backbone.image_size == 48
    assert backbone.network.training
    assert backbone.network(torch.randn(2, 3, 48, 48)).shape == (2, CLASSES)
    network = timm.create_model("test_vit", num_classes=CLASSES)
    own = backbones.create(network, num_classes=CLASSES, image_size=48)
    assert own.network(torch.randn(2, 3, 48, 48)).shape == (2, CLASSES)
    assert network(torch.randn(2, 3, 160, 160)).shape == (2, CLASSES)  # it was copied
    with pytest.raises(
        DialError, match=r"timm:mixer_s32_224 takes.*224.*size of 48 .*--image-size"
    ):
        backbones.create("timm:mixer_s32_224", num_classes=3, weights="none", image_size=48)
    with pytest.raises(
        DialError, match=r"timm:test_vit takes.*160 pixels, got an image size of 50"
    ):
        backbones.create("timm:test_vit", num_classes=3, weights="none", image_size=50)
    free = backbones.create("timm:test_resnet", num_classes=3, weights="none", image_size=48)
    assert free.image_size == 160  # any size passes through it
