"""What is seen inside a network, against a look by hand; and the network as it was."""

import copy

import numpy as np
import torch
from torch import nn

from dial.selection.outputs import observe


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )


def test_logits_of_all_features_and_moments_of_some() -> None:
    model = network().eval()
    images = torch.randn(10, 1, 4, 4)
    seen = observe(model, images.split(4), classifier="4", kept=6, measured=5)
    with torch.no_grad():
        inside = model[0](images[:5]).transpose(0, 1).flatten(1).double().numpy()
        torch.testing.assert_close(torch.from_numpy(seen.logits), model(images))
        torch.testing.assert_close(torch.from_numpy(seen.features), model[:4](images[:6]))
    np.testing.assert_allclose(seen.moments["1"].mean, inside.mean(1), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(seen.moments["1"].var, inside.var(1), rtol=1e-5)


def test_the_network_is_as_it_was() -> None:
    model = network().eval()
    before = copy.deepcopy(model.state_dict())
    observe(model, [torch.randn(4, 1, 4, 4)], classifier="4")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_network_without_norms_is_measured_at_its_classifier() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    seen = observe(model, [torch.randn(3, 1, 2, 2)], classifier="1")
    assert seen.features.shape == (3, 4)
    np.testing.assert_allclose(seen.moments["1"].mean, seen.features.mean(0), rtol=1e-5)
    np.testing.assert_allclose(seen.moments["1"].var, seen.features.var(0), rtol=1e-5)


def test_large_images_are_seen_at_some_positions() -> None:
    model = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 50 * 50, 2))
    images = torch.randn(20, 2, 50, 50) * 3 + 1
    mean, var = observe(model, [images], classifier="2").moments["0"]
    torch.testing.assert_close(mean.float(), torch.ones(2), atol=0.3, rtol=0)
    torch.testing.assert_close(var.float(), torch.full((2,), 9.0), atol=1.5, rtol=0)
