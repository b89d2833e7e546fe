"""Features of two domains in two dimensions, and a figure for how well the domains mix."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_NEIGHBOURS = 10
_PERPLEXITY = 30.0
_EQUAL = 1e-6  # deviation over size, below which features differ by rounding alone
_FEWEST = 8  # points that t-SNE can make something of


def embed(features: Floats) -> Floats:
    """Points `(N, 2)` for features `(N, D)`: t-SNE from a PCA start, the same every time."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    start = _principal(features)
    deviation = start[:, 0].std()
    if len(features) < _FEWEST or deviation < _EQUAL * np.abs(features).max():
        return start
    tsne = TSNE(
        init=start / deviation * 1e-4,
        perplexity=min(_PERPLEXITY, (len(features) - 1) / 3),
        max_iter=500,
        random_state=0,
    )
    with threadpool_limits(limits=1):  # sums over threads come in any order
        return np.asarray(tsne.fit_transform(features), dtype=np.float32)


def _principal(features: Floats) -> Floats:
    """The first two principal components; the value furthest out in each is positive."""
    centred = (features - features.mean(0)).astype(np.float64)
    # Through the products of the images, of which there are fewer than features, as a rule.
    squares, vectors = np.linalg.eigh(centred @ centred.T)
    points = vectors[:, :-3:-1] * np.sqrt(np.maximum(squares[:-3:-1], 0))
    furthest = np.abs(points).argmax(0)
    return np.asarray(points * np.sign(points[furthest, [0, 1]]), dtype=np.float32)


def separation(source: Floats, target: Floats) -> float:
    """How far apart two clouds `(N, D)` and `(M, D)` are: 0 is mixed, 1 is apart.

    The share of target points among the nearest neighbours of target points, scaled so that
    what chance would give is 0. Below 0 (more of the other than chance gives) is told as 0.

    >>> apart = np.arange(20, dtype=np.float32)[:, None]
    >>> separation(apart, apart + 100)
    1.0
    """
    from sklearn.neighbors import NearestNeighbors

    both = np.concatenate([source, target])
    count = min(_NEIGHBOURS, len(target) - 1)
    if count < 1:
        return 0.0
    search = NearestNeighbors(n_neighbors=count + 1).fit(both)
    found = search.kneighbors(target, return_distance=False)
    own = np.arange(len(source), len(both))[:, None]
    others = [row[row != me][:count] for row, me in zip(found, own, strict=True)]
    share = float(np.mean(np.concatenate(others) >= len(source)))
    chance = (len(target) - 1) / (len(both) - 1)
    return max(0.0, (share - chance) / (1 - chance))
