"""Classes that changed places are found, and noise is not taken for it."""

import numpy as np

from dial.selection.outputs import Labels
from dial.selection.swaps import find_swaps

CLASSES = 10


def neighbors_of(truth: Labels, *, knowing: float, seed: int) -> Labels:
    random = np.random.default_rng(seed)
    others = random.integers(0, CLASSES, (len(truth), 5))
    return np.where(random.random((len(truth), 5)) < knowing, truth[:, None], others)


def test_two_classes_that_are_swapped() -> None:
    truth = np.random.default_rng(0).integers(0, CLASSES, 500)
    predicted = np.select([truth == 7, truth == 9], [9, 7], truth)
    found = find_swaps(predicted, neighbors_of(truth, knowing=0.3, seed=1), CLASSES)
    assert found is not None
    assert found.names == {7: 9, 9: 7}
    assert found.images == int(np.isin(truth, [7, 9]).sum())
    assert found.chance < 0.01


def test_three_classes_in_a_circle() -> None:
    truth = np.random.default_rng(0).integers(0, CLASSES, 500)
    circle = {1: 4, 4: 6, 6: 1}
    predicted = np.array([circle.get(int(label), int(label)) for label in truth])
    found = find_swaps(predicted, neighbors_of(truth, knowing=0.5, seed=1), CLASSES)
    assert found is not None
    assert found.names == {after: before for before, after in circle.items()}


def test_poor_predictions_are_not_swapped_ones() -> None:
    """Half of the images of a class are taken for the next one, which is no exchange."""
    truth = np.random.default_rng(0).integers(0, CLASSES, 500)
    wrong = np.random.default_rng(1).random(500) < 0.5
    predicted = np.where(wrong, np.minimum(truth + 1, CLASSES - 1), truth)
    assert find_swaps(predicted, neighbors_of(truth, knowing=0.5, seed=1), CLASSES) is None


def test_wrong_at_most_once_in_twenty() -> None:
    """Neighbors that know nothing agree with any names."""
    alarms = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        predicted = random.integers(0, CLASSES, 200)
        alarms += find_swaps(predicted, random.integers(0, CLASSES, (200, 5)), CLASSES) is not None
    assert alarms <= 300 / 20 + 2 * np.sqrt(300 * 0.05 * 0.95)


def test_few_images() -> None:
    one = np.array([3])
    assert find_swaps(one, np.array([[1, 1, 1]]), CLASSES) is None
    assert find_swaps(np.array([3, 3]), np.array([[1, 1], [1, 1]]), CLASSES) is None
