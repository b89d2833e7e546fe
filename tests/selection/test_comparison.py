"""The test of harm: what it finds, how often it is wrong, and when there is nothing to compare."""

from dataclasses import replace

import numpy as np
import pytest

from dial.selection.comparison import Comparison, chance, compare, weigh

from .validators.small import make

CLASSES = 8


def draw(*, seed: int, better: float, favor: float = 0.0, images: int = 400) -> Comparison:
    """Of the changed predictions a share is right; neighbors know the truth in 6 of 10 cases.

    Images of one class err together: a whole group changes to the same other class. A share of
    the neighbors has the former label, whatever is true.
    """
    random = np.random.default_rng(seed)
    truth = random.integers(0, CLASSES, images)
    wrong = (truth + 1 + random.integers(0, 3, images)) % CLASSES
    groups = truth * CLASSES + wrong
    is_better = random.permutation(CLASSES * CLASSES) < better * CLASSES * CLASSES
    is_changed = random.random(images) < 0.5
    new = np.where(is_changed & ~is_better[groups], wrong, truth)
    former = np.where(is_changed & is_better[groups], wrong, truth)
    others = random.integers(0, CLASSES, (images, 5))
    neighbors = np.where(random.random((images, 5)) < 0.6, truth[:, None], others)
    neighbors = np.where(random.random((images, 5)) < favor, former[:, None], neighbors)
    return weigh(new, former, [neighbors])


def test_support_by_hand() -> None:
    new, former = np.array([0, 1, 2, 2]), np.array([0, 0, 1, 2])
    neighbors = np.array([[5, 5], [1, 1], [1, 2], [0, 0]])
    other = np.array([[0, 0], [0, 0], [1, 1], [2, 2]])
    found = weigh(new, former, [neighbors])
    assert (found.images, found.changed) == (4, 2)
    assert found.support == pytest.approx((1.0 + 0.0) / 2)
    assert weigh(new, former, [neighbors, other]).support == pytest.approx(((1 - 1) + (0 - 1)) / 4)
    assert not found.hurts


def test_harm_is_found_and_a_gain_is_not_called_harm() -> None:
    for seed in range(20):
        worse, better = (draw(seed=seed, better=share) for share in (0.1, 0.9))
        assert worse.hurts
        assert not better.hurts


@pytest.mark.parametrize("favor", [0.0, 0.1])
def test_wrong_at_most_once_in_twenty(favor: float) -> None:
    """Neither prediction is better, errors come in groups, neighbors may favor the former ones."""
    alarms = sum(draw(seed=seed, better=0.5, favor=favor).hurts for seed in range(400))
    assert alarms <= 400 / 20 + 2 * np.sqrt(400 * 0.05 * 0.95)  # two standard errors


def test_chance_by_all_signs() -> None:
    sums = np.array([0.5, -2.0, 1.0, -0.25, -1.5, 0.75])
    signs = 1 - 2 * (np.arange(64)[:, None] >> np.arange(6) & 1)
    exact = np.mean(signs @ sums <= sums.sum())
    assert chance(sums) == pytest.approx(exact, abs=0.02)
    assert chance(np.zeros(0)) == 1.0


def test_both_networks_have_a_say() -> None:
    outputs = make(shift=0.0)
    moved = replace(outputs.target, features=outputs.target.features[::-1].copy())
    same = compare(replace(outputs, unadapted=outputs.target))
    assert same is not None
    assert (same.changed, same.support, same.chance) == (0, 0.0, 1.0)
    reversed_logits = replace(moved, logits=outputs.target.logits[::-1].copy())
    found = compare(replace(outputs, unadapted=reversed_logits))
    assert found is not None
    assert found.changed > 0
    assert abs(found.support) < 0.05  # each supports its own predictions equally well


def test_nothing_to_compare() -> None:
    outputs = make()
    assert compare(outputs) is None
    assert compare(replace(outputs, unadapted=outputs.target, training=None)) is None
