"""Laplace against NumPy."""

import numpy as np
import pytest
import torch

from dial import DomainAlignment
from dial.references import Laplace, Statistics
from tests import oracles
from tests.references.small_layers import SHAPES, prior_of, small_layer


def test_output_has_median_zero_and_mean_absolute_value_one() -> None:
    for count in (101, 100):
        y = DomainAlignment(7, reference="laplace")(torch.randn(count, 7) ** 3 + 4).detach()
        assert np.abs(np.median(y.numpy(), axis=0)).max() < 1e-6
        torch.testing.assert_close(y.abs().mean(0), torch.ones(7))


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape: tuple[int, ...]) -> None:
    layer = small_layer(reference="laplace")
    x = torch.randn(shape).exp() - 1
    y = layer(x)
    expected = oracles.align("laplace", x.double().numpy(), prior_of(layer))
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=2e-6, rtol=2e-6)


def test_scale_has_a_floor() -> None:
    constant = Statistics(torch.tensor([3.0]), torch.tensor([0.0]))
    _, square = Laplace(eps=1e-3).transform(constant, None)
    assert square.item() == pytest.approx(1e-3)
