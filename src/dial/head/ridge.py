"""Ridge regression of class scores on features, from the images or from sums over them."""

from typing import NamedTuple

import torch
from torch import Tensor

_RIDGE = 0.1  # in units of the features' mean variance


def ridge(features: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Returns weight `(K, D)` and bias `(K,)` of a ridge regression of scores `(N, K)`."""
    mean, average = features.mean(0), scores.mean(0)
    centered = features - mean
    if len(centered) >= centered.shape[1]:
        moment = centered.t() @ centered
        return _solve(moment, centered.t() @ (scores - average), mean, average)
    gram = centered @ centered.t()  # fewer images than features: the same, by a smaller system
    penalty = _RIDGE * gram.trace() / centered.shape[1]
    gram.diagonal().add_(penalty.clamp_min(1e-12))
    weight = (centered.t() @ torch.linalg.solve(gram, scores - average)).t()
    return weight, average - weight @ mean


class Moments(NamedTuple):
    """Sums over images, which are taken once where many regressions have images in common."""

    images: int
    features: Tensor
    """`(D,)`."""
    scores: Tensor
    """`(K,)`."""
    squares: Tensor
    """`(D, D)`, of the products of features."""
    products: Tensor
    """`(D, K)`, of features with scores."""

    @classmethod
    def of(cls, features: Tensor, scores: Tensor) -> "Moments":
        """Returns the sums over features `(N, D)`, of mean about 0, and scores `(N, K)`."""
        sums = features.sum(0), scores.sum(0)
        return cls(len(features), *sums, features.t() @ features, features.t() @ scores)

    def join(self, other: "Moments") -> "Moments":
        """Returns the sums over the images of both."""
        return Moments(
            self.images + other.images,
            self.features + other.features,
            self.scores + other.scores,
            self.squares + other.squares,
            self.products + other.products,
        )

    def regress(self) -> tuple[Tensor, Tensor]:
        """Returns the weight and bias that `ridge` does, for images that outnumber features."""
        mean, average = self.features / self.images, self.scores / self.images
        moment = self.squares - self.images * mean.outer(mean)
        return _solve(moment, self.products - self.images * mean.outer(average), mean, average)


def _solve(
    moment: Tensor, products: Tensor, mean: Tensor, average: Tensor
) -> tuple[Tensor, Tensor]:
    penalty = _RIDGE * moment.trace() / len(moment)
    moment.diagonal().add_(penalty.clamp_min(1e-12))
    weight = torch.linalg.solve(moment, products).t()
    return weight, average - weight @ mean
