"""Risk on held-out source images, weighted by their density ratio to the target (DEV).

A logistic classifier separates the features of training source images from those of the target.
It gives each held-out source image the weight `w = (N_source / N_target) p(target) / p(source)`.
With `l` the cross-entropy of these images, the risk is `mean(w l) + eta mean(w) - eta`, where
`eta = -cov(w l, w) / var(w)` is the control variate (the mean of `w` should be 1). You, Wang, Long
and Jordan, "Towards Accurate Model Selection in Deep Unsupervised Domain Adaptation", ICML 2019,
https://proceedings.mlr.press/v97/you19a.html

Departures: the domain classifier is linear with a fixed penalty; the paper trains a small network
and selects its weight decay.
"""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from dial.selection.outputs import Outputs
from dial.selection.validators.interface import Validator

_STRENGTH = 0.01

Doubles = npt.NDArray[np.float64]


class DeepEmbeddedValidation(Validator):
    """Negative weighted risk on held-out source images."""

    needs_held_out = True

    def score(self, outputs: Outputs) -> float:
        """Returns the negative risk."""
        held_out = outputs.require_held_out()
        logs: Doubles = log_softmax(held_out.logits.astype(np.float64), axis=1)
        losses = -logs[np.arange(len(logs)), held_out.labels]
        return -risk(density_ratios(outputs), losses)


def density_ratios(outputs: Outputs) -> Doubles:
    """Returns `(N,)`, the estimated ratio of target to source density at held-out images."""
    training: Any = outputs.training  # it is there, since images were held out of it
    source, target = training.features, outputs.target.features
    domain = np.repeat([0, 1], [len(source), len(target)])
    classifier = fit_classifier(np.concatenate([source, target]), domain, strength=_STRENGTH)
    features = outputs.require_held_out().features.astype(np.float64)
    log_odds: Doubles = classifier.decision_function(features)
    return np.exp(np.clip(log_odds, -50, 50)) * (len(source) / len(target))


def risk(weight: Doubles, loss: Doubles) -> float:
    """Returns the weighted risk with its control variate, which needs weights that differ."""
    weighted = weight * loss
    covariance = np.cov(weighted, weight)
    eta = -covariance[0, 1] / covariance[1, 1] if covariance[1, 1] > 0 else 0.0
    return float(weighted.mean() + eta * weight.mean() - eta)


def fit_classifier(
    features: npt.NDArray[Any], labels: npt.NDArray[np.int64], *, strength: float
) -> Any:
    """Returns a logistic classifier of scikit-learn, fitted to standardized features `(N, D)`.

    `strength` is scikit-learn's `C`, the weight of the data against the L2 penalty.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))
    with warnings.catch_warnings():  # on separable classes it does not converge
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(features.astype(np.float64), labels)


create = DeepEmbeddedValidation
