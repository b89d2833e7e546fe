"""The standard logistic distribution: maximum likelihood by a fixed number of reweighted means."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dial.references._reweighting import reweight
from dial.references.interface import Reference, Statistics

STEPS = 8
_SMALL = 1e-4  # below it the limit of the weight is exact


@dataclass(frozen=True)
class Logistic(Reference):
    """`b` and `s` of the logistic distribution that fits best: between Normal and Laplace.

    Where they are found, the mean of `tanh(z / 2)` is 0 and the mean of `z tanh(z / 2)` is 1, with
    `z = (x - b) / s`: a value has the weight `tanh(z / 2) / z`.
    """

    eps: float = 1e-5

    def estimate(self, x: Tensor) -> Statistics:
        """Returns the location and the squared scale, `(C,)` each."""
        return reweight(x, _weigh, steps=STEPS)

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Returns the location and the squared scale."""
        location, square = statistics
        return location, square + self.eps


def _weigh(z2: Tensor) -> Tensor:
    z = z2.clamp_min(_SMALL).sqrt()
    return torch.where(z2 < _SMALL, 0.5 - z2 / 24, torch.tanh(z / 2) / z)


def create(*, eps: float = 1e-5) -> Logistic:
    """Returns the entry `logistic`."""
    return Logistic(eps)
