"""The standard normal distribution: maximum likelihood, or MAP with a prior on the variance."""

from dataclasses import dataclass

from torch import Tensor

from dial.references.interface import MomentReference, Statistics


@dataclass(frozen=True)
class Normal(MomentReference):
    """`b = mean`, `s**2 = var + eps`: the paper's BN (tiny `eps`) and Epsilon (`eps=1`).

    Epsilon is the most probable transformation if the variance has an Inverse-Gamma prior with
    `alpha = n/2 - 1` and `beta = eps n/2`: the mode of the posterior is `(var + eps) / 2`, and the
    shared affine absorbs the constant factor.
    """

    eps: float = 1e-5

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Returns the mean and `var + eps`."""
        mean, var = statistics
        return mean, var + self.eps


def create(*, eps: float = 1e-5) -> Normal:
    """Returns the entry `normal`."""
    return Normal(eps)
