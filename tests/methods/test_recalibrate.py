"""The method `recalibrate`: statistics of new images, mixed with the network's own."""

import pytest
import torch
from torch import nn

from dial import DialError, methods
from dial.backbones import Backbone
from dial.methods import ByDomain, Images


def network() -> nn.Sequential:
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 3))
    norm: nn.BatchNorm2d = model[1]  # type: ignore[assignment]
    norm.running_mean = torch.randn(4)
    norm.running_var = torch.rand(4) + 0.5
    return model.eval()


@pytest.mark.parametrize("count", [5, 40])
def test_statistics_are_a_posterior_by_the_number_of_images(count: int) -> None:
    model, images = network(), 3 * torch.randn(count, 3, 6, 6) + 1
    conv, norm = model[0], model[1]
    with torch.no_grad():
        values = conv(images).transpose(0, 1).flatten(1)
    w = count / (count + 30)
    mean, var = values.mean(1), values.var(1, correction=0)
    away = (mean - norm.running_mean) ** 2  # type: ignore[operator]
    location = w * mean + (1 - w) * norm.running_mean  # type: ignore[operator]
    square = w * var + (1 - w) * norm.running_var + w * (1 - w) * away  # type: ignore[operator]
    method = methods.create("recalibrate", {"strength": 30.0})
    trainee = method.prepare(Backbone.of(model, image_size=6, sources=()))
    empty = torch.zeros(0, dtype=torch.int64)
    given = Images(ByDomain({}), empty, images.split(3))
    assert method.begin(trainee, given) == {}
    method.finish(trainee, given)
    found = method.predictor(trainee, given)[1]  # type: ignore[index]
    torch.testing.assert_close(found.running_mean, location, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.running_var, square, atol=1e-5, rtol=1e-4)


def test_without_a_prior_it_is_adabn_and_with_a_huge_one_nothing_changes() -> None:
    images = torch.randn(8, 3, 6, 6)
    empty = torch.zeros(0, dtype=torch.int64)
    given = Images(ByDomain({}), empty, images.split(3))
    norms = []
    for strength in (0.0, 1e12):
        torch.manual_seed(0)
        method = methods.create("recalibrate", {"strength": strength})
        trainee = method.prepare(Backbone.of(network(), image_size=6, sources=()))
        method.finish(trainee, given)
        norms.append(method.predictor(trainee, given)[1])  # type: ignore[index]
    torch.manual_seed(0)
    model = network()
    with torch.no_grad():
        values = model[0](images).transpose(0, 1).flatten(1)
    torch.testing.assert_close(norms[0].running_mean, values.mean(1), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(norms[1].running_mean, model[1].running_mean)


def test_a_negative_strength_is_refused() -> None:
    with pytest.raises(DialError, match="strength"):
        methods.create("recalibrate", {"strength": -1.0})
