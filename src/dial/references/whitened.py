"""The standard normal distribution in groups of channels: maximum likelihood, by whitening."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dial.errors import DialError
from dial.references import _blocks
from dial.references._accumulators import Accumulator, CovarianceAccumulator
from dial.references._synchronization import differentiable_sum
from dial.references._variants import read_number
from dial.references.interface import Reference, Statistics


@dataclass(frozen=True)
class Whitened(Reference):
    """`b = mean`, and `s` the Cholesky factor of each group's covariance `V` (Roy et al. 2019):

        s s^T = (1 - shrinkage) V + shrinkage diag(V) + eps I

    so that the channels of a group are uncorrelated after it. Groups are consecutive channels; the
    last one may be smaller. `group=1` is `Normal`. The spread is `(C, G)`: the covariances of each
    channel with those of its group.

    Roy et al. shrink towards the identity. Towards the diagonal, channels of any scale come out
    with variance 1, and a diagonal covariance is treated as batch normalization does. A positive
    shrinkage keeps the matrix well conditioned where a batch has fewer values than a group has
    channels. <https://arxiv.org/abs/1903.03215>
    """

    group: int = 4
    shrinkage: float = 1e-3
    eps: float = 1e-5

    def __post_init__(self) -> None:
        if isinstance(self.group, bool) or not isinstance(self.group, int) or self.group < 1:
            raise DialError(
                wanted="a whole number of channels, 1 or more, in a group of the reference "
                "whitened",
                got=repr(self.group),
                fix="use whitened, or whitened:4",
            )
        if not 0 < self.shrinkage <= 1:
            raise DialError(
                wanted="a shrinkage in (0, 1] for the reference whitened",
                got=repr(self.shrinkage),
                fix="use 1e-3; 1 is the reference normal",
            )

    def estimate(self, x: Tensor) -> Statistics:
        """Returns the mean `(C,)` and the biased covariance `(C, G)`, over all processes."""
        values = x.transpose(0, 1).flatten(1)
        count = differentiable_sum(values.new_tensor([values.shape[1]]))
        mean = differentiable_sum(values.sum(1)) / count
        products = _blocks.covariance(values - mean[:, None], self.group)
        return Statistics(mean, differentiable_sum(products) / count)

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Returns the mean and the covariance, shrunk."""
        mean, rows = statistics
        variances = _blocks.diagonal(rows)
        shrunk = rows + self.shrinkage * (_blocks.from_diagonal(variances, self.group) - rows)
        constant = _blocks.from_diagonal(variances.new_full(variances.shape, self.eps), self.group)
        return mean, shrunk + constant

    def initial_spread(self, ones: Tensor) -> Tensor:
        """Returns the identity."""
        return _blocks.from_diagonal(ones, self.group)

    def tracked(self, statistics: Statistics, count: int) -> Statistics:
        """Returns the mean and the unbiased covariance, as torch's BatchNorm does."""
        mean, rows = statistics
        total = differentiable_sum(mean.new_tensor([count]))
        return Statistics(mean, rows * (total / (total - 1)))

    def accumulator(self) -> Accumulator:
        """Returns an accumulator that is exact, also over uneven batches."""
        return CovarianceAccumulator(self.group)

    def from_moments(self, mean: Tensor, var: Tensor) -> Statistics:
        """Returns the moments of uncorrelated channels."""
        return Statistics(mean, _blocks.from_diagonal(var, self.group))


def create(*, variant: str | None = None, eps: float = 1e-5) -> Whitened:
    """Returns the entry `whitened`, or `whitened:GROUP`.

    Raises:
        DialError: a group that is no whole number of 1 or more.
    """
    if variant is None:
        return Whitened(eps=eps)
    about = "G with G, the channels in a group, a whole number of 1 or more"
    group: Any = read_number("whitened", variant, about=about, example="4")
    return Whitened(int(group) if group.is_integer() else group, eps=eps)
