"""Entropy only: its losses against NumPy."""

import pytest

from .small import cross_entropy, entropy, joint_pass, terms


def test_the_losses_are_cross_entropy_and_weighted_entropy() -> None:
    values, trainee, sample = terms("entropy_only", entropy=0.7)
    source, target, _, _ = joint_pass(trainee, sample)
    expected = cross_entropy(source, sample.labels)
    assert float(values["cross_entropy"]) == pytest.approx(expected, rel=1e-5)
    assert float(values["entropy"]) == pytest.approx(0.7 * entropy(target), rel=1e-5)


def test_the_weight_grows_during_the_warmup() -> None:
    values, trainee, sample = terms("entropy_only", 0.3, entropy=0.7, warmup=0.5)
    _, target, _, _ = joint_pass(trainee, sample)
    assert float(values["entropy"]) == pytest.approx(0.6 * 0.7 * entropy(target), rel=1e-5)
