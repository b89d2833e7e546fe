"""AdaBN + CORAL: AdaBN, then a classifier on source features with the target's covariance."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dial.layers import calibrate
from dial.methods._probe import extract, extract_sources, fit_classifier
from dial.methods.adabn import AdaBN
from dial.methods.interface import Images, Trainee


@dataclass(frozen=True, kw_only=True)
class AdaBNCoral(AdaBN):
    """CORAL (Sun et al. 2016, <https://arxiv.org/abs/1511.05547>) on the features of AdaBN.

    The source's features are whitened and recolored with the covariance of the target's; the
    classifier is logistic regression on them.
    """

    regularization: float = 1.0
    """C of the logistic regression that becomes the classifier."""

    def finish(self, trainee: Trainee, images: Images) -> None:
        """Compute the statistics of both domains, and fit the classifier."""
        super().finish(trainee, images)
        for domain, batches in images.sources.items():
            calibrate(trainee.network, batches, domain=domain)
        source = torch.cat([*extract_sources(trainee, images).values()])
        target = extract(trainee, images.target, images.domain).features
        features, labels = recolor(source, target), images.source_labels
        fit_classifier(trainee, features, labels, regularization=self.regularization)


def recolor(source: Tensor, target: Tensor) -> Tensor:
    """CORAL: `(source - mean_s) C_s^(-1/2) C_t^(1/2) + mean_t` with `C = cov + I`, in float64."""
    source, target = source.double(), target.double()
    eye = torch.eye(source.shape[1], dtype=torch.float64, device=source.device)
    white = (source - source.mean(0)) @ _power(torch.cov(source.t()) + eye, -0.5)
    return white @ _power(torch.cov(target.t()) + eye, 0.5) + target.mean(0)


def _power(matrix: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    power: Tensor = (vectors * values**exponent) @ vectors.t()
    return power


create = AdaBNCoral
