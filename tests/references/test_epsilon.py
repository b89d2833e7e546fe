"""Epsilon against NumPy, and as the Normal that it is."""

import numpy as np
import pytest
import torch

from dial.references import Normal, resolve
from tests import oracles
from tests.references.small_layers import SHAPES, prior_of, small_layer


def test_is_normal_with_the_papers_value_whatever_the_norms_eps() -> None:
    assert resolve("epsilon") == resolve("epsilon", eps=1e-3) == Normal(eps=1.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape: tuple[int, ...]) -> None:
    layer = small_layer(reference="epsilon")
    x = torch.randn(shape).exp() - 1
    y = layer(x)
    expected = oracles.align("epsilon", x.double().numpy(), prior_of(layer))
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=2e-6, rtol=2e-6)
