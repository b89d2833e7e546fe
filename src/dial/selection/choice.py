"""The choice among the predictors that a run has anyway, without labels of the target.

Images of one class lie close together, within the target and across domains. So the score of a
predictor is the mean of two shares: of the source images nearest to each target image, those whose
label is the one predicted for it; and of the target images nearest to it, those for which the same
is predicted. Neighbors are found by the features of every network there is, before and after
training, each domain's mean removed, and the shares are averaged over the networks: the graph of
one network alone would favor the predictor that was made from it.

A predictor that gives all images one label has a perfect second share and a poor first one.
Every target image asks, and no source image does: classes that the target lacks have no vote.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dial.methods import Candidate, nearest

NEIGHBORS = 5


def choose(candidates: Sequence[Candidate], labels: Tensor) -> tuple[Candidate, list[float]]:
    """Returns the candidate with the highest score, and the scores of all.

    Args:
        candidates: with outputs for the same images; of equal scores the first one wins.
        labels: `(N,)`, of the source images, or of prototypes of the classes.
    """
    count = min(NEIGHBORS, len(labels) // len(labels.unique()))  # no more than a class has
    spaces = {id(each.target): (each.source, each.target) for each in candidates}
    neighbors = [_find(source, target, count) for source, target in spaces.values()]
    scores = [score(each.logits.argmax(1), labels.cpu(), neighbors) for each in candidates]
    return candidates[scores.index(max(scores))], scores


def score(predicted: Tensor, labels: Tensor, neighbors: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Returns the share of neighbors that agree, from 0 to 1.

    Args:
        predicted: `(M,)`, classes of the target images.
        labels: `(N,)`, of the source images.
        neighbors: of each network, the rows of the source and of the target that are near to each
            target image, `(M, k)` both.
    """
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
