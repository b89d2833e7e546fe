"""The standard logistic distribution: maximum likelihood."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dial.references._reweighting import reweight
from dial.references.interface import Reference, Statistics

_SMALL = 1e-3  # below it two terms of the series are exact to float32


@dataclass(frozen=True)
class Logistic(Reference):
    """`b` and `s` of the logistic distribution that fits best: between Normal and Laplace.

    Where they are found, the mean of `tanh(z / 2)` is 0 and the mean of `z tanh(z / 2)` is 1, with
    `z = (x - b) / s`: a value has the weight `tanh(z / 2) / z`.
    """

    eps: float = 1e-5

    def estimate(self, x: Tensor) -> Statistics:
        """Returns the location and the squared scale, `(C,)` each."""
        return reweight(x, _weigh)

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Returns the location and the squared scale."""
        location, square = statistics
        return location, square + self.eps


def _weigh(u: Tensor) -> tuple[Tensor, Tensor]:
    z = u.clamp_min(_SMALL).sqrt()
    tanh = torch.tanh(z / 2)
    weights = tanh / z
    slopes = ((1 - tanh.square()) / 2 - weights) / 2
    return torch.where(u < _SMALL, 0.5 - u / 24, weights), torch.where(u < _SMALL, -u / 24, slopes)


def create(*, eps: float = 1e-5) -> Logistic:
    """Returns the entry `logistic`."""
    return Logistic(eps)
