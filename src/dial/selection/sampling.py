"""Which target images to label by hand: by chance to score with, or where labels help most."""

import math

import numpy as np
import numpy.typing as npt
from scipy.special import softmax
from scipy.stats import rankdata

from dial.selection.outputs import Floats

LOOKED_AT = 10_000
"""At most so many images are looked at to choose those for training."""
_SCORED = 50  # images that are kept for scoring at least

Rows = npt.NDArray[np.int64]


def shuffle(population: int, *, seed: int) -> Rows:
    """Returns all rows in an order of chance; its first `n` are a sample without replacement.

    >>> shuffle(5, seed=0).tolist()
    [2, 4, 3, 0, 1]
    """
    return np.random.default_rng(seed).permutation(population)


def kept_for_scoring(population: int, count: int) -> int:
    """Returns how many of the first images of an order are not for training: at least a half."""
    return max(math.ceil(population / 2), count, _SCORED)


def choose_for_training(logits: Floats, features: Floats, count: int, *, seed: int) -> Rows:
    """Returns the rows of images whose labels help most: unsure ones, typical ones, all different.

    Of the half with the smallest margins between the two best classes, the features (on the unit
    sphere) fall into `count` clusters (k-means). Each gives the image that is best by the sum of
    two ranks, that of its margin and that of its distance to the cluster's center.

    Args:
        logits: `(N, K)`.
        features: `(N, D)`.
        count: of images to choose; all are chosen if there are no more.
        seed: of the clusters and of the order.
    """
    random = np.random.default_rng(seed)
    if count >= len(logits):
        return random.permutation(len(logits))
    best = np.sort(softmax(logits.astype(np.float64), axis=1), axis=1)
    margins = best[:, -1] - best[:, -2] if best.shape[1] > 1 else best[:, -1]
    unsure = np.argsort(margins, kind="stable")[: max(math.ceil(len(logits) / 2), count)]
    cluster, distances = _cluster(features[unsure], count, seed=seed)
    rank = rankdata(margins[unsure]) + rankdata(distances)
    chosen = {int(np.where(cluster == each, rank, np.inf).argmin()) for each in np.unique(cluster)}
    rest = [int(row) for row in np.argsort(rank, kind="stable") if row not in chosen]
    rows = [*sorted(chosen), *rest][:count]  # copies of an image make fewer clusters
    shuffled: Rows = unsure[random.permutation(rows)]
    return shuffled


def _cluster(features: Floats, count: int, *, seed: int) -> tuple[Rows, npt.NDArray[np.float64]]:
    """Returns the cluster of each image and its distance to the center, `(N,)` each."""
    from sklearn.cluster import KMeans

    points = features.astype(np.float64)
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    clusters = min(count, len(np.unique(points.round(6), axis=0)))
    fitted = KMeans(clusters, n_init=1, random_state=seed).fit(points)
    distances = np.linalg.norm(points - fitted.cluster_centers_[fitted.labels_], axis=1)
    return fitted.labels_.astype(np.int64), distances
