"""AdaBN + CORAL: the classifier trained anew on source features with the target's covariance."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from dial.calibration import calibrate, to_network
from dial.domains import use_domain
from dial.methods._interface import Images, Trainee, linear_classifier
from dial.methods.adabn import AdaBN


@dataclass(frozen=True, kw_only=True)
class AdaBNCoral(AdaBN):
    """AdaBN's features, the source's recoloured (Sun et al. 2016) for the classifier."""

    regularisation: float = 1.0
    """C of the logistic regression that becomes the classifier."""

    def finish(self, trainee: Trainee, images: Images) -> None:
        """Both domains' statistics, both domains' features, and a classifier between them."""
        super().finish(trainee, images)
        calibrate(trainee.network, images.source, domain="source")
        source = _features(trainee, images.source, "source")
        target = _features(trainee, images.target, "target")
        weight, bias = _fit(recolour(source, target), images.source_labels, self.regularisation)
        layer = linear_classifier(trainee.network, trainee.backbone.classifier)
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)


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


@torch.no_grad()
def _features(trainee: Trainee, batches: Iterable[Tensor], domain: str) -> Tensor:
    trainee.eval()
    with use_domain(trainee, domain):
        found = [trainee(to_network(images, trainee)).features.float() for images in batches]
    return torch.cat(found)


def _fit(features: Tensor, labels: Tensor, regularisation: float) -> tuple[Tensor, Tensor]:
    """Logistic regression; weight `(K, D)` and bias `(K,)` of a softmax over `K` classes."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=regularisation, max_iter=1000)
    model.fit(features.cpu().numpy(), labels.cpu().numpy())
    weight, bias = torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)
    if len(weight) == 1:  # two classes have one row, the log-odds of the second
        return torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    return weight, bias


METHOD = AdaBNCoral
