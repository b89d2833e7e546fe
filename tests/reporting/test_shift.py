"""Distances of statistics, against NumPy."""

import numpy as np
import pytest
import torch

from dial.reporting import shift
from dial.reporting.shift import Moments


def moments(generator: np.random.Generator, channels: int = 7) -> Moments:
    mean, var = generator.normal(size=channels), generator.gamma(2.0, size=channels)
    return Moments(torch.from_numpy(mean), torch.from_numpy(var))


def test_distances_are_those_of_numpy() -> None:
    generator = np.random.default_rng(0)
    source, target = moments(generator), moments(generator)
    (ms, vs), (mt, vt) = ([t.numpy() for t in pair] for pair in (source, target))
    apart = np.abs(ms - mt) / np.sqrt((vs + vt) / 2)
    ratio = np.abs(np.log(np.sqrt(vt) / np.sqrt(vs)))
    np.testing.assert_allclose(shift.location_distance(source, target), apart, rtol=1e-3)
    np.testing.assert_allclose(shift.scale_distance(source, target), ratio, atol=1e-3)
    distance = shift.distance(source, target)
    assert distance.location == pytest.approx(apart.mean(), rel=1e-3)
    assert distance.scale == pytest.approx(ratio.mean(), abs=1e-3)
    assert shift.distance(target, source) == pytest.approx(distance)


def test_scaling_both_domains_changes_nothing() -> None:
    generator = np.random.default_rng(1)
    source, target = moments(generator), moments(generator)
    scaled = [Moments(m.mean * 1000, m.var * 1000**2) for m in (source, target)]
    assert shift.distance(*scaled) == pytest.approx(shift.distance(source, target), rel=1e-3)


def test_silent_channels_are_no_shift() -> None:
    silent = Moments(torch.zeros(3), torch.zeros(3))
    assert shift.distance(silent, silent) == (0.0, 0.0)
