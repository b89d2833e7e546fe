"""The generalized normal distribution with a given exponent: maximum likelihood."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dial.errors import DialError
from dial.references._variants import read_number
from dial.references.interface import Reference, Statistics

_STEPS = 8
_SMOOTH = 1e-3  # keeps weights finite at the location, for exponents below 2
_FLAT = 0.1  # least slope, in units of the weight: with p near 1 there is almost none
_LARGEST = 8.0
_TINY = 1e-12


@dataclass(frozen=True)
class Generalized(Reference):
    """`b` and `s` of the density `exp(-|z|**p / p)`, `z = (x - b) / s`, that fits best.

    The location makes `sum |x - b|**p` least, and the scale is `(mean |x - b|**p)**(1 / p)`. The
    exponent `p = 2` is `Normal` and `p = 1` is `Laplace`, whose median is exact where this one is
    the limit of reweighted means. A larger exponent has thinner tails: it is near to uniform.
    """

    exponent: float = 1.5
    eps: float = 1e-5

    def __post_init__(self) -> None:
        if not 1 <= self.exponent <= _LARGEST:
            raise DialError(
                wanted=f"an exponent from 1 to {_LARGEST:g} for the reference generalized",
                got=repr(self.exponent),
                fix="use generalized, or generalized:1.5",
            )

    def estimate(self, x: Tensor) -> Statistics:
        """Returns the location and the squared scale, `(C,)` each."""
        p, values = self.exponent, x.transpose(0, 1).flatten(1)
        var, mean = torch.var_mean(values, 1, correction=0, keepdim=True)
        var = var.clamp_min(_TINY)
        with torch.no_grad():
            location, fixed = mean, values.detach()
            low, high = fixed.amin(1, keepdim=True), fixed.amax(1, keepdim=True)
            for _ in range(_STEPS):
                pull, weight, slope = self._pull(fixed - location, var)
                # The pull falls with the location, so its sign says on which side the solution is.
                low, high = low.where(pull < 0, location), high.where(pull > 0, location)
                newton = location + pull / slope
                inside = (newton > low) & (
                    newton < high
                )  # where the loss is not smooth it may not be
                location = newton.where(inside, location + pull / (max(1.0, p - 1) * weight))
        # The derivative of Newton's step at the solution is that of the solution itself.
        pull, weight, slope = self._pull(values - location, var)
        step = pull / slope.maximum(_FLAT * weight).detach()
        location = location + (step - step.detach())
        square = (values - location).square().clamp_min(_TINY)
        largest = square.amax(1, keepdim=True)  # a power of at most 1 does not overflow
        mean = ((square / largest) ** (p / 2)).mean(1)
        return Statistics(location.squeeze(1), largest.squeeze(1) * mean ** (2 / p))

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Returns the location and the squared scale."""
        location, square = statistics
        return location, square + self.eps

    def _pull(self, away: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the means of `w (x - b)`, of the weights `w`, and of the first one's slope."""
        u = away.square() / var
        weights = (u + _SMOOTH) ** (self.exponent / 2 - 1)
        with torch.no_grad():
            slopes = weights * (1 + (self.exponent - 2) * u / (u + _SMOOTH))
        means = (each.mean(1, keepdim=True) for each in (weights * away, weights, slopes))
        return next(means), next(means), next(means)


def create(*, variant: str | None = None, eps: float = 1e-5) -> Generalized:
    """Returns the entry `generalized`, or `generalized:EXPONENT`.

    Raises:
        DialError: an exponent that is no number from 1 to 8.
    """
    if variant is None:
        return Generalized(eps=eps)
    about = f"P with P, the exponent, from 1 to {_LARGEST:g}"
    return Generalized(read_number("generalized", variant, about=about, example="1.5"), eps)
