"""Location and scale of maximum likelihood, where there is no closed form."""

from collections.abc import Callable

import torch
from torch import Tensor

from dial.references.interface import Statistics

_MEANS, _STEPS = 2, 3  # reweighted means, then Newton's steps: as exact as twenty means
_TINY = 1e-12
_FLAT = 0.05  # below it the likelihood has no clear maximum, and Newton's step is damped

Weigh = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Of `u = z**2`, the weight `w(u)` of a value and its slope `u w'(u)`."""


def reweight(x: Tensor, weigh: Weigh) -> Statistics:
    """Returns location and squared scale of each channel of `(N, C, *)`.

    With `z = (x - b) / s` and weights `w(z**2)` they solve `mean w z = 0` and `mean w z**2 = 1`:
    the maximum-likelihood estimate of a density `p` if `w = -p'(z) / (z p(z))`.

    They begin as mean and variance. Reweighted means lead near the solution and Newton's steps on
    to it, all without gradients. One more step has them: its derivative at the solution is that of
    the solution itself (the implicit function theorem), and nothing is kept of the others.
    """
    values = x.transpose(0, 1).flatten(1)
    with torch.no_grad():
        fixed = values.detach()
        square, location = torch.var_mean(fixed, 1, correction=0, keepdim=True)
        for _ in range(_MEANS):
            away = fixed - location
            weights, _ = weigh(away.square() / square.clamp_min(_TINY))
            location = location + (weights * away).sum(1, True) / weights.sum(1, True)
            square = (weights * (fixed - location).square_()).mean(1, keepdim=True)
        for _ in range(_STEPS):
            location, square = _newton(fixed, location, square, weigh)
    location, square = _newton(values, location, square, weigh)
    return Statistics(location.squeeze(1), square.squeeze(1))


def _newton(
    values: Tensor, location: Tensor, square: Tensor, weigh: Weigh
) -> tuple[Tensor, Tensor]:
    """Returns location and square after one step, with gradients to `values` alone."""
    scale = square.clamp_min(_TINY).sqrt()
    z = (values - location) / scale
    u = z.square()
    weights, slopes = weigh(u)
    pull = (weights * z).mean(1, keepdim=True)
    excess = (weights * u).mean(1, keepdim=True) - 1
    with torch.no_grad():  # the Jacobian in units of the scale; terms that vanish are left out
        by_location = weights.mean(1, keepdim=True) + 2 * slopes.mean(1, keepdim=True)
        by_square = 1 + (u * slopes).mean(1, keepdim=True)
        by_both = (z * slopes).mean(1, keepdim=True)
        determinant = (by_location * by_square - 2 * by_both.square()).clamp_min(_FLAT)
    shift = (by_square * pull - by_both * excess) / determinant
    growth = (by_location * excess - 2 * by_both * pull) / determinant
    return location + scale * shift, square * (1 + growth).clamp_min(0)
