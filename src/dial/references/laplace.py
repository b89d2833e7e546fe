"""The standard Laplace distribution: maximum likelihood."""

from dataclasses import dataclass

from torch import Tensor

from dial.references import _medians
from dial.references.interface import Reference, Statistics


@dataclass(frozen=True)
class Laplace(Reference):
    """`b = median`, `s` = mean absolute deviation from the median, at least `sqrt(eps)`.

    Both are the maximum-likelihood estimates of the distribution's location and *scale*, so the
    output's median is 0 and its mean absolute value is 1. (The paper writes the scale under a
    root.) The median of an even number of values is the mean of the two middle ones.

    In distributed training each process estimates from its own part of the batch: a median does
    not follow from the medians of the parts, and gathering all activations costs too much.
    """

    eps: float = 1e-5

    def estimate(self, x: Tensor) -> Statistics:
        """Returns the median and the mean absolute deviation from it."""
        values = _medians.by_channel(x)
        median = _medians.median(values)
        return Statistics(median, (values - median[:, None]).abs().mean(dim=(0, 2)))

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Returns the median and the squared deviation."""
        median, deviation = statistics
        return median, deviation.square().clamp_min(self.eps)


def create(*, eps: float = 1e-5) -> Laplace:
    """Returns the entry `laplace`."""
    return Laplace(eps)
