"""Features of two domains embedded in two dimensions, and a measure of how well they mix."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_NEIGHBORS = 10
_PERPLEXITY = 30.0
_EQUAL = 1e-6  # deviation over size, below which features differ by rounding alone
_FEWEST = 8  # points that t-SNE needs


def embed(features: Floats) -> Floats:
    """Returns points `(N, 2)` for features `(N, D)`: t-SNE from a PCA start, deterministic."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if not np.isfinite(features).all():  # t-SNE would end the process, not raise
        return np.zeros((len(features), 2), np.float32)
    start = _principal(features)
    deviation = start[:, 0].std()
    if len(features) < _FEWEST or deviation <= _EQUAL * np.abs(features).max():
        return start
    tsne = TSNE(
        init=start / deviation * 1e-4,
        perplexity=min(_PERPLEXITY, (len(features) - 1) / 3),
        max_iter=500,
        random_state=0,
    )
    with threadpool_limits(limits=1):  # threads add up in any order
        return np.asarray(tsne.fit_transform(features), dtype=np.float32)


def _principal(features: Floats) -> Floats:
    """Returns the first two principal components; the largest value of each is positive."""
    centered = (features - features.mean(0)).astype(np.float64)
    # From the Gram matrix: there are fewer images than features, as a rule.
    squares, vectors = np.linalg.eigh(centered @ centered.T)
    points = vectors[:, :-3:-1] * np.sqrt(np.maximum(squares[:-3:-1], 0))
    largest = np.abs(points).argmax(0)
    return np.asarray(points * np.sign(points[largest, [0, 1]]), dtype=np.float32)


def separation(source: Floats, target: Floats) -> float:
    """Returns how far apart two sets of points `(N, D)` and `(M, D)` are: 0 is mixed, 1 is apart.

    The share of target points among the nearest neighbors of target points, scaled so that chance
    is 0. Negative values (better mixed than chance) are reported as 0.

    >>> line = np.arange(20, dtype=np.float32)[:, None]
    >>> separation(line, line + 100)
    1.0
    """
    from sklearn.neighbors import NearestNeighbors

    both = np.concatenate([source, target])
    count = min(_NEIGHBORS, len(target) - 1)
    if count < 1:
        return 0.0
    search = NearestNeighbors(n_neighbors=count + 1).fit(both)
    neighbors = search.kneighbors(target, return_distance=False)
    rows = np.arange(len(source), len(both))
    others = [near[near != row][:count] for near, row in zip(neighbors, rows, strict=True)]
    share = float(np.mean(np.concatenate(others) >= len(source)))
    chance = (len(target) - 1) / (len(both) - 1)
    return max(0.0, (share - chance) / (1 - chance))
