"""Statistics of a whole domain, gathered batch by batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from dial.references import _fused as kernels

_PIECE = 2**14  # values a channel that float32 sums up with all its digits, or nearly


class Pool(ABC):
    """Sees every batch `(N, C, *)` of a domain once, and then tells the domain's statistics."""

    exact: bool = True
    """Whether the result is that of all values, and not of a sample."""

    @abstractmethod
    def add(self, x: Tensor) -> None:
        """Take in one batch."""

    @abstractmethod
    def result(self) -> tuple[Tensor, Tensor]:
        """Location and spread of all that was taken in, `(C,)` each, in float64."""


class MomentPool(Pool):
    """Mean and (biased) variance of all values, however uneven the batches.

    Batches are merged by the update of Chan, Golub and LeVeque (1979), which stays accurate
    where the sum of squares cancels.

    >>> pool = MomentPool()
    >>> for batch in torch.arange(10.0)[:, None].split([7, 1, 2]):
    ...     pool.add(batch)
    >>> [value.item() for value in pool.result()]
    [4.5, 8.25]
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.squares = torch.zeros(())

    def add(self, x: Tensor) -> None:
        """Take in one batch."""
        if x.numel() == 0:
            return
        places = x.numel() // (x.shape[0] * x.shape[1])
        for part in x.detach().split(max(1, _PIECE // places)):
            self._add(part)

    def _add(self, x: Tensor) -> None:
        count = x.numel() // x.shape[1]
        mean, var = (value.double() for value in _moments(x))
        if self.count == 0:
            self.mean = self.squares = torch.zeros_like(mean)
        shift, total = mean - self.mean, self.count + count
        self.squares = self.squares + var * count + shift**2 * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.count = total

    def result(self) -> tuple[Tensor, Tensor]:
        """Mean and variance, `(C,)` each."""
        return self.mean, self.squares / self.count


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of one piece, in its own precision: the merging of pieces has the digits."""
    if kernels.runs_fused(x):
        return kernels.moments(kernels.dense_like(x, x))
    var, mean = torch.var_mean(kernels.widen(x).transpose(0, 1).flatten(1), dim=1, correction=0)
    return mean, var


class SamplePool(Pool):
    """Any statistics, of a uniform random sample of all values.

    Up to `capacity` values a channel the sample is everything, and the result exact. Beyond it
    memory stays flat and every value, whatever its batch, has the same chance to be in the
    sample: each position draws a random key, and those with the smallest keys are kept. The keys
    come from a generator of the pool's own, so the result is the same every time.
    """

    def __init__(
        self, estimate: Callable[[Tensor], tuple[Tensor, Tensor]], *, capacity: int = 8192
    ) -> None:
        self.estimate, self.capacity = estimate, capacity
        self.generator = torch.Generator().manual_seed(0)
        self.keys = torch.empty(0)
        self.sample: Tensor | None = None

    def add(self, x: Tensor) -> None:
        """Take in one batch."""
        values = x.detach().transpose(0, 1).flatten(1)
        fresh = torch.rand(values.shape[1], generator=self.generator)
        keys = torch.cat([self.keys, fresh])
        self.exact = self.exact and len(keys) <= self.capacity
        kept = keys.argsort()[: self.capacity]
        seen = len(self.keys)
        new = values[:, (kept[kept >= seen] - seen).to(x.device)].float()
        if self.sample is not None:
            new = torch.cat([self.sample[:, kept[kept < seen].to(x.device)], new], dim=1)
        self.sample = new
        self.keys = torch.cat([keys[kept[kept < seen]], keys[kept[kept >= seen]]])

    def result(self) -> tuple[Tensor, Tensor]:
        """The estimates on the sample, `(C,)` each."""
        if self.sample is None:
            raise RuntimeError("no batch was taken in")
        location, spread = self.estimate(self.sample.t().double())
        return location, spread
