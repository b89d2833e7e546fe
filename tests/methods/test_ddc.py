"""DDC: its losses against NumPy."""

import pytest

from .small import cross_entropy, joint_pass, terms


def test_the_discrepancy_is_the_distance_of_mean_features() -> None:
    values, trainee, sample = terms("ddc")
    logits, _, source, target = joint_pass(trainee, sample)
    expected = 0.25 * ((source.mean(0) - target.mean(0)) ** 2).sum()
    assert float(values["discrepancy"]) == pytest.approx(expected, rel=1e-4)
    expected = cross_entropy(logits, sample.labels)
    assert float(values["cross_entropy"]) == pytest.approx(expected, rel=1e-5)
