"""CDAN: the domain loss and its gradients against a version of its own, maps, and checkpoints."""

import math
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import dial
from dial import methods
from dial.backbones import Backbone
from dial.methods.cdan import ConditionalDiscriminator, RandomizedMap
from dial.training import engine
from tests.conftest import SETTINGS

from .small import Array, accuracy_after_training, backbone, batch, numpy, softmax

PROGRESS = 0.4
REVERSAL = 2 / (1 + math.exp(-10 * PROGRESS)) - 1


def wide_backbone() -> Backbone:
    """With 1200 features and 4 classes: an outer product of 4800 numbers is too large."""
    layers = [nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 1200)]
    return Backbone.of(nn.Sequential(*layers, nn.Linear(1200, 4)), image_size=8)


def maps_by_hand(extra: nn.Module, features: Array, p: Array) -> Array:
    """The discriminator's inputs, image by image."""
    state = {name: numpy(tensor) for name, tensor in extra.state_dict().items()}
    if "map.of_features" not in state:
        return np.stack([np.outer(f, q).ravel() for f, q in zip(features, p, strict=True)])
    rows = []
    for f, q in zip(features, p, strict=True):
        left = [f @ column for column in state["map.of_features"].T]
        right = [q @ column for column in state["map.of_predictions"].T]
        rows.append([a * b / 32 for a, b in zip(left, right, strict=True)])
    return np.array(rows)


def discriminate_by_hand(extra: nn.Module, x: Array) -> Array:
    """The probability of the source, without dropout."""
    state = {name: numpy(tensor) for name, tensor in extra.state_dict().items()}
    for layer in (0, 3, 6):
        x = x @ state[f"classifier.{layer}.weight"].T + state[f"classifier.{layer}.bias"]
        x = np.maximum(x, 0) if layer < 6 else x
    return np.asarray(1 / (1 + np.exp(-x[:, 0])))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("conditioning", [False, True])
def test_the_domain_loss_equals_numpy(conditioning: bool, wide: bool) -> None:
    method = methods.create("cdan", {"entropy_conditioning": conditioning, "weight": 0.5})
    trainee = method.prepare(wide_backbone() if wide else backbone()).eval()  # no dropout
    sample = batch(9, 5)
    assert sample.target is not None
    assert trainee.extra is not None
    (values,) = method.terms(trainee, sample, PROGRESS)
    logits, features = map(numpy, trainee(torch.cat([sample.source, sample.target])))
    p = softmax(logits)
    is_source = discriminate_by_hand(trainee.extra, maps_by_hand(trainee.extra, features, p))
    losses = [-math.log(q) for q in is_source[:9]] + [-math.log(1 - q) for q in is_source[9:]]
    weights = [1 + math.exp((row * np.log(row)).sum()) if conditioning else 1.0 for row in p]
    of_source = np.average(losses[:9], weights=weights[:9])
    of_target = np.average(losses[9:], weights=weights[9:])
    assert set(values) == {"cross_entropy", "domain"}
    domain = float(values["domain"].detach())
    assert domain == pytest.approx(0.5 * (of_source + of_target) / 2, rel=1e-4)


@pytest.mark.parametrize("conditioning", [False, True])
def test_gradients_reach_the_network_reversed_and_the_discriminator_straight(
    conditioning: bool,
) -> None:
    """Against a plain loss: the predictions in the map and the sums of weights are constants."""
    method = methods.create("cdan", {"entropy_conditioning": conditioning})
    trainee = method.prepare(backbone()).eval()
    sample = batch(9, 5)
    assert sample.target is not None
    assert trainee.extra is not None
    discriminator = trainee.extra.get_submodule("classifier")
    inner, own = [*trainee.network.parameters()], [*trainee.extra.parameters()]
    (values,) = method.terms(trainee, sample, PROGRESS)
    got = torch.autograd.grad(values["domain"], [*inner, *own], allow_unused=True)

    logits, features = trainee(torch.cat([sample.source, sample.target]))
    p = logits.softmax(1)
    product = torch.einsum("nd,nk->ndk", features, p.detach()).reshape(14, -1)
    is_source = torch.sigmoid(discriminator(product))[:, 0]
    losses = -torch.cat([is_source[:9].log(), (1 - is_source[9:]).log()])
    weights = 1 + (p * p.log()).sum(1).exp() if conditioning else torch.ones(14)
    sums = [float(part.sum()) for part in weights.detach().split([9, 5])]
    normalized = weights / torch.tensor([sums[0]] * 9 + [sums[1]] * 5)
    plain = (normalized * losses).sum() / 2
    wanted = torch.autograd.grad(plain, [*inner, *own], allow_unused=True)

    def compare(one: Tensor | None, other: Tensor | None, factor: float) -> None:
        if other is None:
            assert one is None
        else:
            assert one is not None
            torch.testing.assert_close(one, factor * other, atol=1e-7, rtol=1e-3)

    for one, other in zip(got[: len(inner)], wanted[: len(inner)], strict=True):
        compare(one, other, -REVERSAL)
    for one, other in zip(got[len(inner) :], wanted[len(inner) :], strict=True):
        compare(one, other, 1.0)
    # Without conditioning, nothing reaches the classifier: predictions are constants.
    assert (got[len(inner) - 1] is None) == (not conditioning)


@pytest.mark.parametrize(
    ("features", "classes", "inputs"), [(256, 16, 4096), (241, 17, 1024), (2048, 31, 1024)]
)
def test_the_map_is_randomized_where_the_outer_product_is_large(
    features: int, classes: int, inputs: int
) -> None:
    module = ConditionalDiscriminator(features, classes)
    assert module.state_dict()["classifier.0.weight"].shape == (1024, inputs)
    output = module(torch.randn(3, features), torch.rand(3, classes).softmax(1))
    assert output.shape == (3, 1)
    kinds = [type(layer) for layer in module.get_submodule("classifier")]
    assert kinds == [nn.Linear, nn.ReLU, nn.Dropout, nn.Linear, nn.ReLU, nn.Dropout, nn.Linear]


def test_products_of_randomized_maps_are_those_of_outer_products_in_the_mean() -> None:
    f, p = torch.randn(2, 20), torch.rand(2, 5).softmax(1)
    products = [(y := RandomizedMap(20, 5)(f, p)) @ y.t() for _ in range(400)]
    outer = torch.einsum("nd,nk->ndk", f, p).flatten(1)
    mean, deviation = torch.stack(products).mean(0), torch.stack(products).std(0) / 20
    assert bool(((mean - outer @ outer.t()).abs() < 5 * deviation).all())


def test_the_random_matrices_are_constants_that_a_checkpoint_restores() -> None:
    method, sample = methods.create("cdan"), batch()
    first, second = (method.prepare(wide_backbone()).eval() for _ in range(2))
    names = [name for name, _ in first.extra.named_buffers()]
    assert names == ["map.of_features", "map.of_predictions"]
    assert not {*names} & {name for name, _ in first.extra.named_parameters()}
    second.load_state_dict(first.state_dict())
    one, other = (next(method.terms(trainee, sample, 0.5)) for trainee in (first, second))
    assert torch.equal(one["domain"], other["domain"])
    torch.manual_seed(4)
    drawn = ConditionalDiscriminator(1200, 4).state_dict()["map.of_features"]
    torch.manual_seed(4)
    again = ConditionalDiscriminator(1200, 4).state_dict()["map.of_features"]
    assert torch.equal(drawn, again)


def test_a_run_that_is_resumed_ends_the_same(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial.methods.cdan.LARGEST", 1)  # a randomized map for a small network
    settings = SETTINGS | {"method": "cdan", "cache_dir": str(tmp_path / "cache")}
    whole = dial.adapt(*folders, **settings, out=tmp_path / "whole")
    with (
        pytest.raises(engine.Interrupted),
        patch("dial.console.Reporter.epoch", side_effect=[None, engine.Interrupted]),
    ):
        dial.adapt(*folders, **settings, out=tmp_path / "stopped")
    again = dial.adapt(*folders, **settings, out=tmp_path / "stopped", resume=True)
    one, two = (load_file(run.folder / "model.safetensors") for run in (whole, again))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_its_defaults_are_the_papers() -> None:
    method = methods.create("cdan")
    assert (method.weight, method.entropy_conditioning) == (1.0, True)


def test_it_adapts_to_a_target_that_is_turned() -> None:
    before = accuracy_after_training("source_only")
    after = accuracy_after_training("cdan")
    assert after > before + 0.1
