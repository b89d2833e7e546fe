"""DAN: its losses against NumPy."""

import numpy as np
import pytest
import torch

from dial import losses

from .small import Array, cross_entropy, joint_pass, numpy, terms


def mmd(source: Array, target: Array) -> float:
    x = np.concatenate([source, target])
    distance = ((x[:, None] - x[None]) ** 2).sum(2)
    mean = distance.sum() / (len(x) * (len(x) - 1))
    kernel = sum(np.exp(-distance / (mean * factor)) for factor in (0.25, 0.5, 1, 2, 4))
    n = len(source)
    return float(kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean())


def test_the_discrepancy_is_that_of_features_and_logits() -> None:
    values, trainee, sample = terms("dan")
    logits_s, logits_t, source, target = joint_pass(trainee, sample)
    expected = mmd(source, target) + mmd(logits_s, logits_t)
    assert float(values["discrepancy"]) == pytest.approx(expected, rel=1e-4)
    expected = cross_entropy(logits_s, sample.labels)
    assert float(values["cross_entropy"]) == pytest.approx(expected, rel=1e-5)


def test_mmd_in_float64() -> None:
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    # The bandwidth is a constant to the gradient, so only the value is checked against NumPy.
    assert float(losses.mmd(x, x + 1).detach()) == pytest.approx(mmd(numpy(x), numpy(x + 1)))
