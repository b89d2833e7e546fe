"""Location and scale by a fixed number of reweighted means, where there is no closed form."""

from collections.abc import Callable

from torch import Tensor

from dial.references.interface import Statistics

_TINY = 1e-12


def reweight(x: Tensor, weigh: Callable[[Tensor], Tensor], *, steps: int) -> Statistics:
    """Returns location and squared scale of each channel of `(N, C, *)`.

    They begin as mean and variance. With `z = (x - b) / s`, each step sets

        b    <- sum w x / sum w
        s**2 <- mean w (x - b)**2

    where `w = weigh(z**2)`. The fixed point is the maximum-likelihood estimate of a density `p` if
    `w = -p'(z) / (z p(z))`. Gradients pass through all steps.
    """
    values = x.transpose(0, 1).flatten(1)
    location = values.mean(1, keepdim=True)
    square = (values - location).square().mean(1, keepdim=True)
    for _ in range(steps):
        weights = weigh((values - location).square() / square.clamp_min(_TINY))
        location = (weights * values).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
        square = (weights * (values - location).square()).mean(1, keepdim=True)
    return Statistics(location.squeeze(1), square.squeeze(1))
