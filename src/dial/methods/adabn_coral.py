"""AdaBN + CORAL: the classifier trained anew on source features with the target's covariance."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dial.layers.calibration import calibrate
from dial.methods._probe import features_of, fit, put
from dial.methods.adabn import AdaBN
from dial.methods.interface import Images, Trainee


@dataclass(frozen=True, kw_only=True)
class AdaBNCoral(AdaBN):
    """AdaBN's features, the source's recoloured (Sun et al. 2016) for the classifier."""

    regularisation: float = 1.0
    """C of the logistic regression that becomes the classifier."""

    def finish(self, trainee: Trainee, images: Images) -> None:
        """Both domains' statistics, both domains' features, and a classifier between them."""
        super().finish(trainee, images)
        calibrate(trainee.network, images.source, domain="source")
        source = features_of(trainee, images.source, "source")
        target = features_of(trainee, images.target, "target")
        put(trainee, *fit(recolour(source, target), images.source_labels, self.regularisation))


def recolour(source: Tensor, target: Tensor) -> Tensor:
    """CORAL: `(source - mean_s) C_s^(-1/2) C_t^(1/2) + mean_t` with `C = cov + I`, in float64.

    Args:
        source: `(N, D)`.
        target: `(M, D)`.

    Returns:
        `(N, D)`.
    """
    source, target = source.double(), target.double()
    eye = torch.eye(source.shape[1], dtype=torch.float64, device=source.device)
    whitened = (source - source.mean(0)) @ _power(torch.cov(source.t()) + eye, -0.5)
    return whitened @ _power(torch.cov(target.t()) + eye, 0.5) + target.mean(0)


def _power(matrix: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    power: Tensor = (vectors * values**exponent) @ vectors.t()
    return power


METHOD = AdaBNCoral
