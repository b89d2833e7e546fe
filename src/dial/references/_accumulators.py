"""Statistics of a whole domain, accumulated batch by batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from dial.references import _blocks

_PIECE = 2**14  # values per channel that float32 sums up with (nearly) all digits


class Accumulator(ABC):
    """Takes every batch `(N, C, *)` of a domain once, then returns the domain's statistics."""

    exact: bool = True
    """Whether the result is that of all values, not of a sample."""

    @abstractmethod
    def add(self, x: Tensor) -> None:
        """Add one batch."""

    @abstractmethod
    def result(self) -> tuple[Tensor, Tensor]:
        """Returns location and spread of all values so far, as in `Statistics`, in float64."""


class MomentAccumulator(Accumulator):
    """Mean and (biased) variance of all values, however uneven the batches.

    Batches are merged by the update of Chan, Golub and LeVeque (1979), which stays accurate
    where the sum of squares cancels.

    >>> accumulator = MomentAccumulator()
    >>> for batch in torch.arange(10.0)[:, None].split([7, 1, 2]):
    ...     accumulator.add(batch)
    >>> [value.item() for value in accumulator.result()]
    [4.5, 8.25]
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.squares = torch.zeros(())

    def add(self, x: Tensor) -> None:
        """Add one batch."""
        if x.numel() == 0:
            return
        positions = x.numel() // (x.shape[0] * x.shape[1])
        for piece in x.detach().split(max(1, _PIECE // positions)):
            self._merge(piece)

    def _merge(self, x: Tensor) -> None:
        count = x.numel() // x.shape[1]
        # The moments of a piece have the precision of the batch; merging them is in float64.
        mean, var = (value.double() for value in self._moments(x))
        if self.count == 0:
            self.mean, self.squares = torch.zeros_like(mean), torch.zeros_like(var)
        shift, total = mean - self.mean, self.count + count
        self.squares = (
            self.squares + var * count + self._product(shift) * (self.count * count / total)
        )
        self.mean = self.mean + shift * (count / total)
        self.count = total

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        from dial.references._fused import moments  # which imports the references, and they this

        return moments(x)

    def _product(self, shift: Tensor) -> Tensor:
        return shift**2

    def result(self) -> tuple[Tensor, Tensor]:
        """Returns mean `(C,)` and variance or covariance, `(C,)` or `(C, G)`."""
        return self.mean, self.squares / self.count


class CovarianceAccumulator(MomentAccumulator):
    """Mean and (biased) covariance within groups of channels, by the same update.

    >>> accumulator = CovarianceAccumulator(group=2)
    >>> for batch in torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]).split([2, 1]):
    ...     accumulator.add(batch)
    >>> (3 * accumulator.result()[1]).round().tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values = x.double().transpose(0, 1).flatten(1)
        mean = values.mean(1)
        products = _blocks.covariance(values - mean[:, None], self.group)
        return mean, products / values.shape[1]

    def _product(self, shift: Tensor) -> Tensor:
        return _blocks.outer(shift, self.group)


class SampleAccumulator(Accumulator):
    """Any statistics, of a uniform random sample of all values.

    Up to `capacity` values per channel the sample is complete and the result exact. Beyond that,
    memory stays constant and every value has the same chance to be in the sample: each position
    draws a random key, and the smallest keys stay. The accumulator has a generator of its own,
    so the result is reproducible.
    """

    def __init__(
        self, estimate: Callable[[Tensor], tuple[Tensor, Tensor]], *, capacity: int = 8192
    ) -> None:
        self.estimate, self.capacity = estimate, capacity
        self.generator = torch.Generator().manual_seed(0)
        self.keys = torch.empty(0)
        self.sample: Tensor | None = None

    def add(self, x: Tensor) -> None:
        """Add one batch."""
        values = x.detach().transpose(0, 1).flatten(1)
        count = len(self.keys)
        keys = torch.cat([self.keys, torch.rand(values.shape[1], generator=self.generator)])
        self.exact = self.exact and len(keys) <= self.capacity
        smallest = keys.argsort()[: self.capacity]
        former, new = smallest[smallest < count], smallest[smallest >= count]
        sample = values[:, (new - count).to(x.device)].float()
        if self.sample is not None:
            sample = torch.cat([self.sample[:, former.to(x.device)], sample], dim=1)
        self.sample, self.keys = sample, torch.cat([keys[former], keys[new]])

    def result(self) -> tuple[Tensor, Tensor]:
        """Returns the estimates on the sample, `(C,)` each."""
        if self.sample is None:
            raise RuntimeError("no batch was added")
        location, spread = self.estimate(self.sample.t().double())
        return location, spread
