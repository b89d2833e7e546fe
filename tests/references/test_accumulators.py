"""Accumulators against the statistics of all the data at once."""

import numpy as np
import pytest
import torch

from dial.references import (
    CovarianceAccumulator,
    Laplace,
    MomentAccumulator,
    SampleAccumulator,
)
from tests import oracles


def test_moments_hold_far_from_zero() -> None:
    accumulator = MomentAccumulator()
    x = (torch.randn(1000, 2, dtype=torch.float64) + 1e6).float()
    for batch in x.split([1, 399, 600]):
        accumulator.add(batch)
    accumulator.add(x[:0])
    mean, var = accumulator.result()
    np.testing.assert_allclose(mean, x.double().numpy().mean(0), rtol=1e-7)
    np.testing.assert_allclose(var, x.double().numpy().var(0), rtol=1e-2)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_moments_of_large_batches_have_their_digits(layout: torch.memory_format) -> None:
    x = (torch.randn(24, 3, 96, 96) + 5).contiguous(memory_format=layout)
    accumulator = MomentAccumulator()
    accumulator.add(x)
    mean, var = accumulator.result()
    values = oracles.channels_first(x.double().numpy())
    np.testing.assert_allclose(mean, values.mean(1), rtol=1e-6)
    np.testing.assert_allclose(var, values.var(1), rtol=1e-5)


def test_covariances_are_those_of_all_values_at_once() -> None:
    accumulator = CovarianceAccumulator(group=2)
    x = torch.randn(60, 5, 3)
    x = x + x.roll(1, dims=1) + 1e4 + torch.linspace(0, 9, 60)[:, None, None]
    for batch in x.split([1, 20, 39]):
        accumulator.add(batch)
    accumulator.add(x[:0])
    mean, spread = accumulator.result()
    values = oracles.channels_first(x.double().numpy())
    np.testing.assert_allclose(mean, values.mean(1), rtol=1e-9)
    covariance = np.cov(values, bias=True)
    for channel in range(5):
        start = channel // 2 * 2
        wanted = np.zeros(2)
        wanted[: min(2, 5 - start)] = covariance[channel, start : start + 2]
        np.testing.assert_allclose(spread[channel], wanted, rtol=1e-7)


def test_sample_is_exact_while_it_fits_and_fair_beyond() -> None:
    x = torch.randn(40, 3, 5) + torch.arange(40.0)[:, None, None]  # batches differ in order
    whole, part = (
        SampleAccumulator(Laplace().estimate),
        SampleAccumulator(Laplace().estimate, capacity=64),
    )
    for batch in x.split([7, 13, 20]):
        whole.add(batch)
        part.add(batch)
    values = oracles.channels_first(x.double().numpy())
    np.testing.assert_allclose(whole.result()[0], np.median(values, axis=1), rtol=1e-6)
    assert part.sample is not None
    assert part.sample.shape == (3, 64)
    np.testing.assert_allclose(part.result()[0], np.median(values, axis=1), atol=6)
    assert all(np.isin(part.sample[c].numpy(), x[:, c].numpy()).all() for c in range(3))


def test_result_of_nothing_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no batch was added"):
        SampleAccumulator(Laplace().estimate).result()
