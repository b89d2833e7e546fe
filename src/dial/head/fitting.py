"""A linear classifier for the target from features of both domains, without training a network.

Each domain's mean is removed, as a DA-layer on the features does. Labels then travel over the
graph of nearest neighbors of both domains (Zhou et al. 2004), starting from the source's labels
and a first guess for the target; a ridge regression on the source and the surest target images,
and the target's class centroids, make the next guess. A larger part of each predicted class is
kept round by round. The last regression is the classifier.

After training there are two networks to take features from, the one from before and the trained
one. Their mistakes differ, so labels travel over both graphs and the guesses are averaged.

Centroids give every class the same weight, which is wrong if the target has no images of some.
So they are left out if the predicted class shares are far from the source's.

Target images whose labels are known keep them all the way, and are always part of the regression.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from dial.head.neighbors import nearest
from dial.head.ridge import Moments, ridge

NEIGHBORS = 5
ROUNDS = 5
_MANY = 20_000  # images from which on speed counts for more than the last bit
_DIFFUSION = 0.8  # share of an image's scores that come from its neighbors at each iteration
_ITERATIONS = 30
_GUESS = 0.5  # weight of the guess for a target image, where a source label has 1
_KNOWN = 2.0  # weight of a target image's known label: it is of the right domain
_CONFIDENCE = 0.8  # mean confidence of a guess
_SHARPNESS = 3  # exponent of similarities
_MISSING = 0.3  # total variation of class shares from which on classes are taken to be missing
_ABSENT = 0.25  # a class is absent if it has less than this part of its share in the source
_MOST_SCALED = 20_000  # rows of scores that any scale is found from
_SCALE_RANGE = (1e-4, 1e6)


@dataclass(frozen=True, eq=False)
class Head:
    """A linear classifier and what it says about the target images that it was fitted to."""

    weight: Tensor
    """`(K, D)`, for features of any domain."""
    bias: Tensor
    """`(K,)`, for the target's features as they are."""
    labels: Tensor
    """`(M,)`, pseudo-labels of the target images."""
    confidence: Tensor
    """`(M,)`, of the pseudo-labels."""
    absent: tuple[int, ...]
    """Classes that the target seems to have no images of."""


@torch.no_grad()
def fit_head(
    spaces: Sequence[tuple[Tensor, Tensor]],
    labels: Tensor,
    *,
    num_classes: int,
    guess: Tensor | None = None,
    given: Tensor | None = None,
    rounds: int = ROUNDS,
    neighbors: int = NEIGHBORS,
) -> Head:
    """Returns a classifier on the last of some feature spaces.

    Args:
        spaces: features of the source `(N, D)` and the target `(M, D)`, by one network or by
            several; labels travel over the graphs of all of them.
        labels: `(N,)`, of the source.
        num_classes: `K`.
        guess: logits `(M, K)` to start from; by default those of a regression on the source.
        given: `(M,)`, known labels of target images, and -1 where there is none.
        rounds: how often pseudo-labels are made.
        neighbors: of each image in the graphs.
    """
    aligned = [_Space(source, target, neighbors=neighbors) for source, target in spaces]
    known = one_hot(labels, num_classes).to(aligned[-1].source)
    if guess is None:
        guess = _mean([space.apply(space.regress(known)) for space in aligned])
    p = _confident(guess.to(known))
    sure = _Given(given, num_classes, like=p)
    has_all = True
    for number in range(1, rounds + 1):
        p = sure.set(p, _KNOWN / _GUESS)
        scores = sure.set(_mean([space.propagate(known, p) for space in aligned]))
        predicted, confidence = scores.argmax(1), scores.amax(1)
        if number == 1:
            has_all = _total_variation(predicted, labels, num_classes) < _MISSING
        kept = _surest(predicted, confidence, number / rounds, by_class=has_all)
        kept = sure.add(kept)
        pseudo = one_hot(predicted[kept], num_classes).to(known)
        guesses = []
        for space in aligned:
            classifier = space.regress(known, kept, pseudo)
            guesses.append(_confident(space.apply(classifier)))
            if has_all:
                guesses.append(_confident(space.compare_with_centroids(scores)))
        p = _mean(guesses)
    weight, bias = classifier
    sharpness = scale_for_confidence(space.apply(classifier), float(confidence.mean()))
    weight = sharpness * weight / space.scale
    return Head(
        weight=weight,
        bias=sharpness * bias - weight @ space.mean,
        labels=predicted,
        confidence=confidence,
        absent=() if has_all else _absent(predicted, labels, num_classes),
    )


def align_means(sources: Sequence[Tensor]) -> Tensor:
    """Returns the features of all sources, each moved by a constant to the mean of them all.

    Removing the mean of the result then removes that of each source.
    """
    if len(sources) == 1:
        return sources[0]
    parts = [features - features.mean(0) for features in sources]
    return torch.cat(parts) + torch.cat([*sources]).mean(0)


def scale_for_confidence(scores: Tensor, confidence: float) -> float:
    """Returns the scale at which the mean of `max softmax(scale * scores)` is the confidence.

    Of very many rows of scores `(N, K)`, every so many-th counts.
    """
    scores = scores[:: math.ceil(len(scores) / _MOST_SCALED)].double()
    low, high = _SCALE_RANGE
    for _ in range(50):  # bisection: confidence grows with the scale
        middle = math.sqrt(low * high)
        is_below = float((middle * scores).softmax(1).amax(1).mean()) < confidence
        low, high = (middle, high) if is_below else (low, middle)
    return middle


class _Given:
    """Known labels of some target images."""

    def __init__(self, labels: Tensor | None, num_classes: int, *, like: Tensor) -> None:
        rows = torch.zeros(0, dtype=torch.int64) if labels is None else labels
        self.rows = (rows >= 0).nonzero().flatten().to(like.device)
        self.scores = one_hot(rows[rows >= 0], num_classes).to(like)

    def set(self, scores: Tensor, weight: float = 1.0) -> Tensor:
        """Returns scores `(M, K)` with the known labels in their rows."""
        return scores.index_copy(0, self.rows, weight * self.scores) if len(self.rows) else scores

    def add(self, rows: Tensor) -> Tensor:
        """Returns rows, and those with known labels, each once."""
        return torch.cat([rows, self.rows]).unique() if len(self.rows) else rows


class _Space:
    """Features of both domains by one network, each domain's mean removed."""

    def __init__(self, source: Tensor, target: Tensor, *, neighbors: int) -> None:
        self.mean = target.mean(0)
        centered = source - source.mean(0), target - self.mean
        self.scale = _scale(*centered)
        self.source, self.target = (x / self.scale for x in centered)
        self.graph = _graph(torch.cat([self.source, self.target]), neighbors)
        self._of_source: Moments | None = None

    def regress(
        self, known: Tensor, kept: Tensor | None = None, pseudo: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the regression on the source's labels, and on pseudo-labels of kept images."""
        if len(self.source) > max(_MANY, self.source.shape[1]):
            return self._regress_many(known, kept, pseudo)
        if kept is None or pseudo is None:
            return ridge(self.source, known)
        return ridge(torch.cat([self.source, self.target[kept]]), torch.cat([known, pseudo]))

    def _regress_many(
        self, known: Tensor, kept: Tensor | None, pseudo: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns the same; the part of the source, whose labels stay, is computed once."""
        if self._of_source is None:
            self._of_source = Moments.of(self.source, known)
        if kept is None or pseudo is None:
            return self._of_source.regress()
        return self._of_source.join(Moments.of(self.target[kept], pseudo)).regress()

    def apply(self, classifier: tuple[Tensor, Tensor]) -> Tensor:
        """Returns the scores of the target, `(M, K)`."""
        weight, bias = classifier
        return self.target @ weight.t() + bias

    def propagate(self, known: Tensor, guess: Tensor) -> Tensor:
        """Returns the target's class scores, `(M, K)`, after travelling over the graph."""
        scores = _propagate(self.graph, torch.cat([known, _GUESS * guess]))[len(known) :]
        return scores / scores.sum(1, keepdim=True).clamp_min(1e-12)

    def compare_with_centroids(self, scores: Tensor) -> Tensor:
        """Returns the cosine of features with the centroids by squared scores, `(M, K)`."""
        weights = scores.square()
        weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-12)
        unit = normalize(self.target)
        return unit @ normalize(weights.t() @ unit).t()


def _mean(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([*parts]).mean(0)


def _scale(*features: Tensor) -> Tensor:
    """Returns the root of the mean squared norm of centered features."""
    squares = torch.stack([x.square().sum(1).mean() for x in features])
    return squares.mean().sqrt().clamp_min(1e-12)


def _graph(features: Tensor, neighbors: int) -> Tensor:
    """Returns the normalized adjacency of nearest neighbors by cosine, `(N, N)`, sparse."""
    unit, count = normalize(features), len(features)
    similarity, rows = nearest(unit, unit, neighbors, itself=True)
    i = torch.arange(count, device=unit.device).repeat_interleave(rows.shape[1])
    j, w = rows.flatten(), similarity.clamp_min(1e-6).pow(_SHARPNESS).flatten()
    i, j, w = torch.cat([i, j]), torch.cat([j, i]), torch.cat([w, w])
    degree = w.new_zeros(count).index_add_(0, i, w).clamp_min(1e-12)
    w = w / (degree[i] * degree[j]).sqrt()
    places, size = torch.stack([i, j]), (count, count)
    graph = torch.sparse_coo_tensor(places, w, size, check_invariants=False).coalesce()
    if count <= _MANY:
        return graph
    with warnings.catch_warnings():  # torch calls this layout, twice as fast, a beta
        warnings.simplefilter("ignore", UserWarning)
        return graph.to_sparse_csr()


def _propagate(graph: Tensor, scores: Tensor) -> Tensor:
    """Returns the scores `(N, K)` after they have travelled over the graph."""
    start = scores
    for _ in range(_ITERATIONS):
        scores = _DIFFUSION * torch.sparse.mm(graph, scores) + (1 - _DIFFUSION) * start
    return scores


def _surest(predicted: Tensor, confidence: Tensor, part: float, *, by_class: bool) -> Tensor:
    """Returns the rows of the surest part of each predicted class, or of all images."""
    if not by_class:
        return confidence.argsort(descending=True)[: math.ceil(part * len(confidence))]
    rows = []
    for label in predicted.unique():
        of_class = (predicted == label).nonzero().flatten()
        order = confidence[of_class].argsort(descending=True)
        rows.append(of_class[order[: math.ceil(part * len(order))]])
    return torch.cat(rows)


def _total_variation(predicted: Tensor, labels: Tensor, num_classes: int) -> float:
    shares = [_shares(each, num_classes) for each in (predicted, labels)]
    return float((shares[0] - shares[1]).abs().sum() / 2)


def _absent(predicted: Tensor, labels: Tensor, num_classes: int) -> tuple[int, ...]:
    found, expected = (_shares(each, num_classes) for each in (predicted, labels))
    return tuple((found < _ABSENT * expected).nonzero().flatten().tolist())


def _shares(labels: Tensor, num_classes: int) -> Tensor:
    return labels.bincount(minlength=num_classes) / len(labels)


def _confident(scores: Tensor) -> Tensor:
    """Returns `softmax(scale * scores)` with a mean confidence of 0.8."""
    return (scale_for_confidence(scores, _CONFIDENCE) * scores).softmax(1)
