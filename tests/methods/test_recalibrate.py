"""The method `recalibrate`: statistics of new images, mixed with the network's own."""

import copy

import pytest
import torch
from torch import nn

from dial import DialError, methods
from dial.backbones import Backbone
from dial.methods import ByDomain, Images

EMPTY = torch.zeros(0, dtype=torch.int64)


def network() -> nn.Sequential:
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 3))
    norm: nn.BatchNorm2d = model[1]  # type: ignore[assignment]
    norm.running_mean = torch.randn(4)
    norm.running_var = torch.rand(4) + 0.5
    return model.eval()


def mixed(model: nn.Sequential, images: torch.Tensor, w: float) -> nn.Sequential:
    """The network with mean and variance of the mixture of both, by their definitions."""
    other = copy.deepcopy(model)
    norm = other[1]
    with torch.no_grad():
        values = model[0](images).transpose(0, 1).flatten(1)
    mean, var = values.mean(1), values.var(1, correction=0)
    location = w * mean + (1 - w) * norm.running_mean  # type: ignore[operator]
    second = w * (var + mean**2) + (1 - w) * (norm.running_var + norm.running_mean**2)  # type: ignore[operator]
    norm.running_mean, norm.running_var = location, second - location**2
    return other


def information(model: nn.Sequential, images: torch.Tensor) -> float:
    with torch.no_grad():
        p = model(images).double().softmax(1)
    mean = p.mean(0)
    return float((p * p.log()).sum(1).mean() - (mean * mean.log()).sum())


@pytest.mark.parametrize("seed", range(6))
def test_the_weight_is_the_one_with_most_information(seed: int) -> None:
    torch.manual_seed(seed)
    model, images = network(), 3 * torch.randn(40, 3, 6, 6) * torch.rand(40, 1, 1, 1) + 1
    most = 40 / (40 + 30)
    wanted = max(
        (0.0, most / 16, most / 4, most), key=lambda w: information(mixed(model, images, w), images)
    )
    method = methods.create("recalibrate", {"strength": 30.0})
    trainee = method.prepare(Backbone.of(copy.deepcopy(model), image_size=6, sources=()))
    given = Images(ByDomain({}), EMPTY, images.split(7))
    assert method.begin(trainee, given) == {}
    method.finish(trainee, given)
    assert method.figures(trainee)["statistics_weight"] == pytest.approx(wanted)
    found, expected = method.predictor(trainee, given), mixed(model, images, wanted)
    torch.testing.assert_close(found(images), expected(images), atol=1e-4, rtol=1e-4)


def test_a_network_that_new_statistics_do_not_help_stays_as_it_is() -> None:
    model = network()
    with torch.no_grad():
        model[5].weight.mul_(30)  # type: ignore[operator, union-attr]  # sure of itself
    images = torch.randn(30, 3, 6, 6)
    method = methods.create("recalibrate", {"strength": 1e12})
    trainee = method.prepare(Backbone.of(copy.deepcopy(model), image_size=6, sources=()))
    given = Images(ByDomain({}), EMPTY, images.split(7))
    before = method.unadapted(trainee, ())
    method.finish(trainee, given)
    assert before is not None
    torch.testing.assert_close(before(images), model(images))
    torch.testing.assert_close(method.predictor(trainee, given)(images), model(images))


def test_a_negative_strength_is_refused() -> None:
    with pytest.raises(DialError, match="strength"):
        methods.create("recalibrate", {"strength": -1.0})


def test_a_network_without_statistics_is_refused() -> None:
    for layer in (nn.BatchNorm2d(4, track_running_stats=False), nn.Identity()):
        model = network()
        model[1] = layer
        record = Backbone.of(model, image_size=6, sources=(), append_after=(), insert_before=())
        with pytest.raises(DialError, match="BatchNorms"):
            methods.create("recalibrate").prepare(record)
