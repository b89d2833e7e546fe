"""The interface of a reference distribution, and what one of your own needs.

A reference turns a batch into statistics (`estimate`) and statistics into the transformation
`y = (x - b) / s` (`transform`). All tensors `x` are `(N, C, *)`, all statistics `(C,)`; a spread
and a squared scale may also be `(C, G)`, the rows of matrices over groups of `G` channels.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from dial.references import _blocks
from dial.references._accumulators import Accumulator, MomentAccumulator, SampleAccumulator


class Statistics(NamedTuple):
    """Location `(C,)` and spread `(C,)` or `(C, G)`: what a DA-layer stores for a domain."""

    location: Tensor
    spread: Tensor


class Shared(NamedTuple):
    """What all domains of a layer share, `(C,)` each: the affine and the pretrained statistics."""

    weight: Tensor | None
    bias: Tensor | None
    prior: Statistics | None


class Tracking(NamedTuple):
    """Running statistics of a domain, which `update` changes in place, and their momentum."""

    running: Statistics | None
    momentum: float

    def update(self, batch: Statistics) -> None:
        """Move the running statistics, if there are any, towards those of a batch."""
        if self.running is not None:
            for average, value in zip(self.running, batch, strict=True):
                average.lerp_(value.detach().to(average.dtype), self.momentum)


class Reference(ABC):
    """A fixed distribution onto which a DA-layer maps the activations of every domain.

    To add one, implement `estimate` and `transform` with differentiable operations. The other
    methods follow from these two; override them where something more exact exists. Objects are
    immutable and hold no tensors, so one object serves all layers of a network.
    """

    @abstractmethod
    def estimate(self, x: Tensor) -> Statistics:
        """Returns location and spread of each channel of one domain's batch `(N, C, *)`."""

    @abstractmethod
    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:
        """Returns the location `b` and the *square* of the scale, `s**2`, of `y = (x - b) / s`.

        A square `(C, G)` is the matrix `s s^T`, with `s` triangular and `G` channels in a group:
        `y = s^-1 (x - b)`. `prior` holds the statistics of the pretrained network, or None if
        there are none.
        """

    def initial_spread(self, ones: Tensor) -> Tensor:
        """Returns the spread that a layer starts with, given `(C,)` ones."""
        return ones

    def uses_prior(self) -> bool:
        """Whether `transform` depends on the prior, so that layers must keep it."""
        return False

    def tracked(self, statistics: Statistics, count: int) -> Statistics:  # noqa: ARG002
        """Returns what enters the running average, for a batch of `count` values per channel."""
        return statistics

    def accumulator(self) -> Accumulator:
        """Returns a new accumulator of a whole domain's statistics, batch by batch."""
        return SampleAccumulator(self.estimate)

    def from_moments(self, mean: Tensor, var: Tensor) -> Statistics:
        """Returns the statistics of normally distributed channels with these moments."""
        grid = torch.linspace(0, 1, 2049, dtype=torch.float64, device=mean.device)
        quantiles = torch.special.ndtri((grid[1:] + grid[:-1]) / 2)
        quantiles = quantiles / quantiles.square().mean().sqrt()
        x = mean.double() + var.double().sqrt() * quantiles[:, None]
        location, spread = self.estimate(x)
        return Statistics(location.to(mean.dtype), spread.to(var.dtype))

    def align(self, x: Tensor, shared: Shared, tracking: Tracking) -> Tensor:
        """Returns `weight * (x - b) / s + bias` with the statistics of this batch of one domain."""
        wide = widen(x)
        statistics = self.estimate(wide)
        tracking.update(self.tracked(statistics, x.numel() // x.shape[1]))
        location, square = self.transform(statistics, shared.prior)
        return transformed(wide, location, square, shared.weight, shared.bias).to(x.dtype)


class MomentReference(Reference):
    """A reference whose location is the mean and whose spread is the (biased) variance."""

    def estimate(self, x: Tensor) -> Statistics:
        """Returns mean and biased variance of each channel of `(N, C, *)`."""
        var, mean = torch.var_mean(x, dim=[0, *range(2, x.dim())], correction=0)
        return Statistics(mean, var)

    def tracked(self, statistics: Statistics, count: int) -> Statistics:
        """Returns the mean and the unbiased variance, which torch's BatchNorm tracks too."""
        return Statistics(statistics.location, statistics.spread * (count / (count - 1)))

    def accumulator(self) -> Accumulator:
        """Returns an accumulator that is exact, also over uneven batches."""
        return MomentAccumulator()

    def from_moments(self, mean: Tensor, var: Tensor) -> Statistics:
        """Returns the moments themselves."""
        return Statistics(mean, var)


def transformed(
    x: Tensor, location: Tensor, square: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Returns `weight * (x - location) / s + bias`, with `s` the root of `square`."""
    centered = x - per_channel(location, x)
    if square.dim() == 1:
        factor = square.rsqrt() if weight is None else weight * square.rsqrt()
        y = centered * per_channel(factor, x)
    else:
        rows = _blocks.inverse_root(widen(square))
        rows = rows if weight is None else weight[:, None] * rows
        y = _blocks.multiply(rows, centered.transpose(0, 1).flatten(1))
        y = dense(y.unflatten(1, (len(x), *x.shape[2:])).transpose(0, 1), like=x)
    if bias is not None:
        y = y + per_channel(bias, x)
    return y


def dense(x: Tensor, *, like: Tensor) -> Tensor:
    """Returns `x` in the memory format of `like`: kernels are slow on any other."""
    for layout, rank in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if like.dim() == rank and like.is_contiguous(memory_format=layout):
            return x.contiguous(memory_format=layout)
    return x.contiguous()


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """Returns `(C,)` values in a shape that broadcasts against `x`."""
    return values.view(1, -1, *[1] * (x.dim() - 2))


def widen(x: Tensor) -> Tensor:
    """Returns `x` in float32 at least: half precision has too few digits for statistics."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
