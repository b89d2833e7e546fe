"""Nearest neighbors by cosine: exact among thousands of images, in cells among many more.

All similarities of 100,000 images with each other take minutes. So many images are divided into
about `sqrt(M)` cells, by the nearest of as many centroids, and each query looks into the few cells
whose centroids are nearest to it (an inverted file: Sivic and Zisserman 2003; Jegou et al. 2011,
<https://doi.org/10.1109/TPAMI.2010.57>). Time then grows as `N sqrt(M)`, and memory as `N + M`.
"""

import math

import torch
from torch import Tensor

_ROWS = 1000  # queries at a time
_EXACT = 20_000**2  # pairs of a query and an image up to which all are compared
_SEARCHED = 8  # cells
_SAMPLE = 32  # images for each centroid that it is found from
_ITERATIONS = 5  # of k-means
_NONE = -2.0  # below any cosine


def nearest(
    queries: Tensor, images: Tensor, count: int, *, itself: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the similarities and the rows of the images nearest to each query, `(N, count)`.

    Args:
        queries: `(N, D)`, of length 1.
        images: `(M, D)`, of length 1.
        count: of neighbors; fewer where there are fewer images.
        itself: the queries are the images, and no image is a neighbor of itself.

    >>> nearest(torch.eye(3), torch.eye(3)[:2], 1)[1].flatten().tolist()[:2]
    [0, 1]
    """
    count = min(count, len(images) - itself)
    search = _in_cells if len(queries) * len(images) > _EXACT and count else _among_all
    return search(queries, images, count, itself=itself)


def _among_all(
    queries: Tensor, images: Tensor, count: int, *, itself: bool
) -> tuple[Tensor, Tensor]:
    blocks = []
    for start in range(0, len(queries), _ROWS):
        similarity = queries[start : start + _ROWS] @ images.t()
        if itself:
            similarity.diagonal(start).fill_(_NONE)
        blocks.append(similarity.topk(count, 1))
    values, rows = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return values, rows


def _in_cells(
    queries: Tensor, images: Tensor, count: int, *, itself: bool
) -> tuple[Tensor, Tensor]:
    """Returns what `_among_all` does, but for a few neighbors that lie in cells not searched."""
    centroids = _centroids(images)
    cells = _among_all(images, centroids, 1, itself=False)[1]
    searched = _among_all(queries, centroids, min(_SEARCHED, len(centroids)), itself=False)[1]
    width = count + itself  # the nearest of all is the image itself, which leaves at the end
    values = queries.new_full((len(queries), width), _NONE)
    rows = torch.zeros_like(values, dtype=torch.int64)
    pairs = zip(*(_rows_by_cell(each, len(centroids)) for each in (searched, cells)), strict=True)
    for asking, members in pairs:
        inside = images[members]
        for some in asking.split(_ROWS) if len(members) else ():
            found, places = (queries[some] @ inside.t()).topk(min(width, len(members)), 1)
            best = torch.cat([values[some], found], 1).topk(width, 1)
            known = torch.cat([rows[some], members[places]], 1)
            values[some], rows[some] = best.values, known.gather(1, best.indices)
    if itself:
        values.masked_fill_(rows == torch.arange(len(rows), device=rows.device)[:, None], _NONE)
        values, order = values.topk(count, 1)
        rows = rows.gather(1, order)
    short = (values[:, -1] == _NONE).nonzero().flatten()
    for asking in short.split(_ROWS):  # their cells have too few images
        similarity = queries[asking] @ images.t()
        if itself:
            similarity.scatter_(1, asking[:, None], _NONE)
        values[asking], rows[asking] = similarity.topk(count, 1)
    return values, rows


def _rows_by_cell(cells: Tensor, count: int) -> tuple[Tensor, ...]:
    """Returns, for each of so many cells, the rows that have it among theirs, `(N, P)`."""
    flat = cells.flatten()
    places = flat.argsort(stable=True) // cells.shape[1]
    return torch.split(places, flat.bincount(minlength=count).tolist())


def _centroids(images: Tensor) -> Tensor:
    """Returns `sqrt(M)` centroids of length 1, by spherical k-means on every so many-th image."""
    count = math.isqrt(len(images))
    sample = images[:: max(1, len(images) // (_SAMPLE * count))]
    centroids = sample[:: len(sample) // count][:count].clone()
    for _ in range(_ITERATIONS):
        cells = _among_all(sample, centroids, 1, itself=False)[1].flatten()
        sums = torch.zeros_like(centroids).index_add_(0, cells, sample)
        is_empty = cells.bincount(minlength=count) == 0
        centroids = torch.nn.functional.normalize(sums.where(~is_empty[:, None], centroids))
    return centroids
