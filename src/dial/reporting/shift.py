"""How far apart two domains are at a layer: distances of per-channel means and deviations."""

from typing import NamedTuple

import torch
from torch import Tensor

from dial.selection.observation import Moments

EPS = 1e-5
"""Added to variances, as normalisation layers do, so that silent channels count as equal."""


class Distance(NamedTuple):
    """Of two domains at one layer, averaged over its channels."""

    location: float
    """Mean of `location_distance`: how many deviations the channels' means lie apart."""
    scale: float
    """Mean of `scale_distance`: `exp` of it is by what factor the deviations differ."""


def location_distance(source: Moments, target: Moments) -> Tensor:
    """`|mu_s - mu_t| / sqrt((var_s + var_t) / 2)` of each channel, `(C,)`.

    >>> one = Moments(torch.tensor([0.0]), torch.tensor([1.0]))
    >>> round(location_distance(one, Moments(torch.tensor([2.0]), torch.tensor([1.0]))).item(), 3)
    2.0
    """
    pooled = (source.var.double() + target.var.double()) / 2 + EPS
    return (source.mean.double() - target.mean.double()).abs() / pooled.sqrt()


def scale_distance(source: Moments, target: Moments) -> Tensor:
    """`|log(sigma_t / sigma_s)|` of each channel, `(C,)`."""
    return ((target.var.double() + EPS) / (source.var.double() + EPS)).log().abs() / 2


def distance(source: Moments, target: Moments) -> Distance:
    """Both distances of a layer, averaged over its channels; the same in both directions."""
    measures = location_distance, scale_distance
    return Distance(*(float(torch.mean(measure(source, target))) for measure in measures))
