"""How far the neighbors of target images agree with what is predicted for them.

Images of one class lie close together, within the target and across domains. So the score of a
prediction is the mean of two shares: of the source images nearest to each target image, those whose
label is the one predicted for it; and of the target images nearest to it, those for which the same
is predicted.

A predictor that gives all images one label has a perfect second share and a poor first one.
Every target image asks, and no source image does: classes that the target lacks have no vote.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dial.head import nearest

NEIGHBORS = 5


def agreement(
    predictions: Sequence[Tensor], labels: Tensor, spaces: Sequence[tuple[Tensor, Tensor]]
) -> list[float]:
    """Returns the share of neighbors that agree with each prediction, from 0 to 1.

    Args:
        predictions: classes of the target images, `(M,)` each.
        labels: `(N,)`, of the source images, or of prototypes of the classes.
        spaces: features of the source `(N, D)` and the target `(M, D)`, by one network or by
            several; each domain's mean is removed, and shares are averaged over the networks.
    """
    count = min(NEIGHBORS, len(labels) // len(labels.unique()))  # no more than a class has
    neighbors = [_find(source, target, count) for source, target in spaces]
    return [_score(each.cpu(), labels.cpu(), neighbors) for each in predictions]


def _score(predicted: Tensor, labels: Tensor, neighbors: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Returns the mean share; rows of neighbors are those near to each target image, `(M, k)`."""
    shares = []
    for of_source, of_target in neighbors:
        shares.append((labels[of_source] == predicted[:, None]).double().mean())
        if of_target.shape[1]:  # a single image has no neighbor
            shares.append((predicted[of_target] == predicted[:, None]).double().mean())
    return float(torch.stack(shares).mean())


def _find(source: Tensor, target: Tensor, count: int) -> tuple[Tensor, Tensor]:
    source, target = (normalize(x.cpu() - x.cpu().mean(0)) for x in (source, target))
    of_source = nearest(target, source, count)
    of_target = nearest(target, target, NEIGHBORS, itself=True)
    return of_source[1], of_target[1]
