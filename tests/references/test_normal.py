"""Normal against torch's batch norm and NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from dial import DomainAlignment, use_domain
from dial.references import Normal
from tests import oracles
from tests.references.small_layers import SHAPES, prior_of, small_layer, with_gradients


@pytest.mark.parametrize("eps", [1e-5, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_is_batch_norm_on_each_domain_alone(shape: tuple[int, ...], eps: float) -> None:
    layer = DomainAlignment(5, reference=Normal(eps=eps))
    for domain in ("source", "target"):
        norm = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
        plain = norm[len(shape)](5, eps=eps)
        nn.init.uniform_(plain.weight), nn.init.uniform_(plain.bias)
        layer.weight, layer.bias = plain.weight, plain.bias
        for _ in range(3):
            x, g = 2 * torch.randn(shape) + 3, torch.randn(shape)
            with use_domain(layer, domain):
                mine = with_gradients(layer, x, g)
            for a, b in zip(mine, with_gradients(plain, x, g), strict=True):
                torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)
        statistics = layer.statistics(domain)
        assert statistics is not None
        torch.testing.assert_close(statistics.location, plain.running_mean, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(statistics.spread, plain.running_var, atol=1e-6, rtol=1e-6)
        x = torch.randn(shape)
        with use_domain(layer.eval(), domain):
            torch.testing.assert_close(layer(x), plain.eval()(x), atol=1e-6, rtol=1e-6)
        layer.train()


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape: tuple[int, ...]) -> None:
    layer = small_layer(reference="normal")
    x = torch.randn(shape).exp() - 1
    y = layer(x)
    expected = oracles.align("normal", x.double().numpy(), prior_of(layer))
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=2e-6, rtol=2e-6)
