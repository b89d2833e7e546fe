"""The generalized normal distribution with a given exponent: maximum likelihood."""

from dataclasses import dataclass

from torch import Tensor

from dial.errors import DialError
from dial.references._variants import read_number
from dial.references.interface import Reference, Statistics

STEPS = 8
_SMOOTH = 1e-3  # keeps weights finite at the location, for exponents below 2
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
        location = values.mean(1, keepdim=True)
        var = (values - location).square().mean(1, keepdim=True).clamp_min(_TINY)
        # Newton's step where the loss is smooth (p > 2), the reweighted mean where it is not.
        curvature = max(1.0, p - 1)
        for _ in range(STEPS):
            away = values - location
            weights = (away.square() / var + _SMOOTH) ** (p / 2 - 1)
            location = location + (weights * away).sum(1, True) / (curvature * weights.sum(1, True))
        square = (values - location).square().clamp_min(_TINY)
        largest = square.amax(1, keepdim=True)  # a power of at most 1 does not overflow
        mean = ((square / largest) ** (p / 2)).mean(1)
        return Statistics(location.squeeze(1), largest.squeeze(1) * mean ** (2 / p))

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Returns the location and the squared scale."""
        location, square = statistics
        return location, square + self.eps


def create(*, variant: str | None = None, eps: float = 1e-5) -> Generalized:
    """Returns the entry `generalized`, or `generalized:EXPONENT`.

    Raises:
        DialError: an exponent that is no number from 1 to 8.
    """
    if variant is None:
        return Generalized(eps=eps)
    about = f"P with P, the exponent, from 1 to {_LARGEST:g}"
    return Generalized(read_number("generalized", variant, about=about, example="1.5"), eps)
