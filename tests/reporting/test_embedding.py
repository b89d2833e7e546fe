"""Points and separation: the same every time, sane where there is little to place."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from dial.reporting.embedding import embed, separation


@pytest.mark.parametrize("count", [2, 5, 9, 60])
def test_points_are_finite_and_repeatable(count: int) -> None:
    features = np.random.default_rng(0).normal(size=(count, 12)).astype(np.float32)
    points = embed(features)
    assert points.shape == (count, 2)
    assert np.isfinite(points).all()
    np.testing.assert_array_equal(points, embed(features))


def test_equal_features_and_single_ones_have_places() -> None:
    assert np.isfinite(embed(np.ones((40, 5), np.float32))).all()
    assert embed(np.arange(30, dtype=np.float32)[:, None]).shape == (30, 2)


def test_few_points_are_placed_by_their_principal_components() -> None:
    features = np.random.default_rng(0).normal(size=(7, 20)).astype(np.float32)
    points, wanted = embed(features), PCA(2).fit_transform(features)
    np.testing.assert_allclose(np.abs(points), np.abs(wanted), rtol=1e-3, atol=1e-4)


def test_groups_stay_groups() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(80, 10)).astype(np.float32)
    features[40:] += 30
    points = embed(features)
    near, far = points[:40], points[40:]
    between = np.linalg.norm(near.mean(0) - far.mean(0))
    assert between > max(near.std(), far.std())


def test_separation_is_nothing_for_one_cloud_and_all_for_two() -> None:
    generator = np.random.default_rng(0)
    source, target = generator.normal(size=(2, 300, 5)).astype(np.float32)
    assert separation(source, target) < 0.1
    assert separation(source, target + 100) == 1
    assert 0.2 < separation(source, target + 1) < 0.95
    assert separation(source, target[:1]) == 0


@pytest.mark.parametrize("value", [0.0, 3.0, np.nan, np.inf])
def test_features_that_are_all_equal_or_not_finite_do_not_end_the_process(value: float) -> None:
    points = embed(np.full((24, 5), value, np.float32))
    assert points.shape == (24, 2)
    assert np.isfinite(points).all()
