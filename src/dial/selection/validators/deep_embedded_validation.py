"""Risk on held-out source images, each weighted by how much like the target it is (DEV).

A logistic classifier tells features of training source images from those of the target. Of a
held-out source image it gives the weight `w = (N_source / N_target) p(target) / p(source)`. With
`l` the cross-entropy of these images, the risk is `mean(w l) + eta mean(w) - eta`, where
`eta = -cov(w l, w) / var(w)` is the control variate: the mean of `w` should be 1. You, Wang, Long
and Jordan, "Towards Accurate Model Selection in Deep Unsupervised Domain Adaptation", ICML 2019,
https://proceedings.mlr.press/v97/you19a.html

Departures: the domain classifier is linear and its penalty fixed, where the paper trains a small
network and chooses its decay.
"""

import numpy as np

from dial.selection.outputs import Outputs
from dial.selection.validators._classifier import fit
from dial.selection.validators._probabilities import Doubles, log_softmax

NEEDS_HELD_OUT = True
_STRENGTH = 0.01


def score(outputs: Outputs) -> float:
    """The risk with its sign changed, so that higher is better."""
    held_out = outputs.held_out
    assert held_out is not None  # noqa: S101 - NEEDS_HELD_OUT
    losses = -log_softmax(held_out.logits)[np.arange(len(held_out.logits)), held_out.labels]
    return -risk(weights(outputs), losses)


def weights(outputs: Outputs) -> Doubles:
    """How much more often the target has images like each held-out one than the source, `(N,)`."""
    assert outputs.held_out is not None  # noqa: S101 - NEEDS_HELD_OUT
    source, target = outputs.training.features, outputs.target.features
    domain = np.repeat([0, 1], [len(source), len(target)])
    classifier = fit(np.concatenate([source, target]), domain, strength=_STRENGTH)
    log_odds: Doubles = classifier.decision_function(outputs.held_out.features.astype(np.float64))
    return np.exp(np.clip(log_odds, -50, 50)) * (len(source) / len(target))


def risk(weight: Doubles, loss: Doubles) -> float:
    """The weighted risk with its control variate; without it where all weights are the same."""
    weighted = weight * loss
    covariance = np.cov(weighted, weight)
    eta = -covariance[0, 1] / covariance[1, 1] if covariance[1, 1] > 0 else 0.0
    return float(weighted.mean() + eta * weight.mean() - eta)
