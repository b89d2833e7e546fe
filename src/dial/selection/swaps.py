"""Classes that seem to have changed places: a test without labels of the target.

A loss that wants confident predictions alone is content if two classes are swapped. The neighbors
tell: images predicted as one class lie next to source images of the other, and the other way round.
So the predicted classes are renamed, one to one, such that most neighbors agree. Where the best
names are the predicted ones, all is well. If not, the other half of the images must confirm it:
chance would do so at most once in twenty times.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from dial.selection.comparison import SIGNIFICANT, chance
from dial.selection.neighborhood import Labels, agree


class Swaps(NamedTuple):
    """Predicted classes that other names fit better."""

    names: dict[int, int]
    """The class that fits, by the one that is predicted."""
    images: int
    """Images that are predicted as one of these."""
    chance: float
    """The probability of such names by chance."""


def find_swaps(predicted: Labels, neighbors: Labels, num_classes: int) -> Swaps | None:
    """Returns the classes that changed places; None if chance explains them.

    Args:
        predicted: `(M,)`, in an order that has nothing to do with the classes.
        neighbors: `(M, k)`, labels of the source images nearest to each image.
        num_classes: `K`.
    """
    first, second = (slice(start, None, 2) for start in (0, 1))
    names = _best_names(predicted[first], neighbors[first], num_classes)
    renamed = names[predicted[second]]
    is_moved = renamed != predicted[second]
    asked = neighbors[second][is_moved]
    gains = agree(asked, predicted[second][is_moved]) - agree(asked, renamed[is_moved])
    probability = chance(gains)
    if not is_moved.any() or probability > SIGNIFICANT:
        return None
    moved = {c: int(names[c]) for c in np.unique(predicted[second][is_moved]).tolist()}
    return Swaps(moved, int(np.isin(predicted, [*moved]).sum()), probability)


def _best_names(predicted: Labels, neighbors: Labels, num_classes: int) -> Labels:
    """Returns `(K,)`, a permutation of the classes with which most neighbors agree."""
    votes = np.zeros((num_classes, num_classes))
    np.add.at(votes, (np.repeat(predicted, neighbors.shape[1]), neighbors.ravel()), 1)
    votes += 1e-6 * np.eye(num_classes)  # of equal names the predicted one
    names: Labels = linear_sum_assignment(-votes)[1]
    return names
