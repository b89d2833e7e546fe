"""What a reference distribution is: an estimator of location and spread, and their use."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dial.references._accumulators import Pool, SamplePool
from dial.references._fused import per_channel, widen


class Statistics(NamedTuple):
    """Location and spread of each channel, both of shape `(C,)`; what a DA-layer stores."""

    location: Tensor
    spread: Tensor


class Shared(NamedTuple):
    """What a layer's domains have in common, `(C,)` each: the affine, and the pretrained prior."""

    weight: Tensor | None
    bias: Tensor | None
    prior: Statistics | None


class Tracking(NamedTuple):
    """A domain's running statistics, changed in place, and how far a batch moves them."""

    running: Statistics | None
    momentum: float

    @torch.no_grad()
    def update(self, batch: Statistics) -> None:
        """Move the running statistics, where there are any, towards those of a batch."""
        if self.running is not None:
            for own, new in zip(self.running, batch, strict=True):
                own.lerp_(new.to(own.dtype), self.momentum)


class Reference(ABC):
    """A fixed distribution that a DA-layer maps the activations of every domain onto.

    To add one, implement `estimate` and `transform` with differentiable operations. The other
    methods follow from these two; override them where something faster or more exact exists.
    Objects are immutable and hold no tensors: one serves all layers of a network.
    """

    @abstractmethod
    def estimate(self, x: Tensor) -> Statistics:
        """Location and spread of a batch `(N, C, *)` of one domain, channel by channel."""

    @abstractmethod
    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:
        """The location `b` and the *square* of the scale, `s**2`, in `y = (x - b) / s`.

        `prior` has the statistics of the pretrained network, None where there are none.
        """

    def uses_prior(self) -> bool:
        """Whether `transform` looks at the prior, so that layers must keep it."""
        return False

    def tracked(self, statistics: Statistics, count: int) -> Statistics:  # noqa: ARG002
        """What enters the running average, for a batch of `count` values a channel."""
        return statistics

    def pool(self) -> Pool:
        """A new accumulator for the statistics of a whole domain, batch after batch."""
        return SamplePool(self.estimate)

    def from_moments(self, mean: Tensor, var: Tensor) -> Statistics:
        """The statistics of normally distributed channels with these moments, `(C,)` each."""
        grid = torch.linspace(0, 1, 2049, dtype=torch.float64, device=mean.device)
        quantiles = torch.special.ndtri((grid[1:] + grid[:-1]) / 2)
        quantiles = quantiles / quantiles.square().mean().sqrt()
        x = mean.double() + var.double().sqrt() * quantiles[:, None]
        location, spread = self.estimate(x)
        return Statistics(location.to(mean.dtype), spread.to(var.dtype))

    def align(self, x: Tensor, shared: Shared, tracking: Tracking) -> Tensor:
        """`weight * (x - b) / s + bias` with the statistics of this batch of one domain."""
        wide = widen(x)
        statistics = self.estimate(wide)
        tracking.update(self.tracked(statistics, x.numel() // x.shape[1]))
        location, square = self.transform(statistics, shared.prior)
        factor = square.rsqrt() if shared.weight is None else shared.weight * square.rsqrt()
        y = (wide - per_channel(location, x)) * per_channel(factor, x)
        if shared.bias is not None:
            y = y + per_channel(shared.bias, x)
        return y.to(x.dtype)

    def align_jointly(
        self, x: Tensor, sizes: Sequence[int], shared: Shared, tracking: Sequence[Tracking]
    ) -> Tensor:
        """`align` for a batch of several domains, one after the other in runs of `sizes`."""
        parts = zip(x.split(list(sizes)), tracking, strict=True)
        return torch.cat([self.align(part, shared, own) for part, own in parts])
