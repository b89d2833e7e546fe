"""Anchored against NumPy, batch norm and the pretrained network."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dial import DialError, DomainAlignment
from dial.references import Anchored, resolve
from tests import oracles
from tests.references.small_layers import SHAPES, prior_of, small_layer


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape: tuple[int, ...]) -> None:
    layer = small_layer(reference="anchored")
    x = torch.randn(shape).exp() - 1
    y = layer(x)
    expected = oracles.align("anchored", x.double().numpy(), prior_of(layer))
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=2e-6, rtol=2e-6)


def test_reaches_from_batch_norm_to_the_pretrained_network() -> None:
    x, mean0, var0 = torch.randn(20, 5, 3, 3) * 2 + 1, torch.randn(5), torch.rand(5) + 0.5
    for weight, expected in [
        (1.0, F.batch_norm(x, None, None, training=True)),
        (1e-7, F.batch_norm(x, mean0, var0)),
    ]:
        layer = DomainAlignment(5, reference=Anchored(weight))
        layer.prior_location, layer.prior_spread = mean0, var0
        torch.testing.assert_close(layer(x), expected, atol=2e-6, rtol=2e-6)


def test_without_a_prior_is_normal() -> None:
    x = torch.randn(20, 5)
    anchored, normal = DomainAlignment(5, reference="anchored"), DomainAlignment(5)
    torch.testing.assert_close(anchored(x), normal(x), atol=1e-6, rtol=1e-6)


def test_weight_is_a_number_above_zero_up_to_one() -> None:
    assert resolve("anchored:0.5", eps=1e-3) == Anchored(0.5, eps=1e-3)
    with pytest.raises(DialError, match=r"in \(0, 1\].*got 0"):
        Anchored(0)
    with pytest.raises(DialError, match=r"weight of the data in \(0, 1\].* got 2.0"):
        resolve("anchored:2")
    with pytest.raises(DialError, match=r"anchored:W .* got 'anchored:half'"):
        resolve("anchored:half")
