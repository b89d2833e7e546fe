"""Nearest neighbors by cosine, block by block, so that memory stays small."""

import torch
from torch import Tensor

_ROWS = 1000  # queries at a time


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
    blocks = []
    for start in range(0, len(queries), _ROWS):
        similarity = queries[start : start + _ROWS] @ images.t()
        if itself:
            similarity.diagonal(start).fill_(-2.0)
        blocks.append(similarity.topk(count, 1))
    values, rows = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return values, rows
