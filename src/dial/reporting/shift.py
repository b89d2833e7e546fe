"""How far apart two domains are at a layer: distances of per-channel means and deviations."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dial.selection.outputs import Moments

EPS = 1e-5
"""Added to variances, as normalization layers do, so that silent channels count as equal."""


class Distance(NamedTuple):
    """Distances between two domains at one layer, averaged over its channels."""

    location: float
    """Mean of `location_distance`: by how many deviations the channels' means differ."""
    scale: float
    """Mean of `scale_distance`: its `exp` is the factor by which the deviations differ."""


def location_distance(source: Moments, target: Moments) -> npt.NDArray[np.float64]:
    """Returns `|mu_s - mu_t| / sqrt((var_s + var_t) / 2)` of each channel, `(C,)`.

    >>> one, two = Moments(np.zeros(1), np.ones(1)), Moments(np.full(1, 2.0), np.ones(1))
    >>> round(location_distance(one, two).item(), 3)
    2.0
    """
    pooled = (_double(source.var) + _double(target.var)) / 2 + EPS
    return np.abs(_double(source.mean) - _double(target.mean)) / np.sqrt(pooled)


def scale_distance(source: Moments, target: Moments) -> npt.NDArray[np.float64]:
    """Returns `|log(sigma_t / sigma_s)|` of each channel, `(C,)`."""
    return np.abs(np.log((_double(target.var) + EPS) / (_double(source.var) + EPS))) / 2


def distance(source: Moments, target: Moments) -> Distance:
    """Returns both distances of a layer, averaged over its channels; they are symmetric."""
    measures = location_distance, scale_distance
    return Distance(*(float(measure(source, target).mean()) for measure in measures))


def _double(values: Any) -> npt.NDArray[np.float64]:
    return np.asarray(values, np.float64)
