"""Mutual information of target images and predictions: confident one by one, diverse together.

`H(mean_i p_i) - mean_i H(p_i)`, from 0 to `log K`, which is reached if every prediction is certain
and all classes are equally frequent. As a validator: Musgrave, Belongie and Lim, "Three New
Validators and a Large-Scale Benchmark Ranking for Unsupervised Domain Adaptation", 2022,
https://arxiv.org/abs/2208.07360

A method that minimizes the target's entropy optimizes a part of this score. It is therefore biased
towards large weights of that loss, until predictions collapse into few classes.
"""

import numpy as np
from scipy.special import entr, softmax

from dial.selection.outputs import Outputs
from dial.selection.validators.interface import Validator


class InformationMaximization(Validator):
    """Entropy of the mean prediction minus mean entropy of the predictions."""

    def score(self, outputs: Outputs) -> float:
        """Returns the mutual information in nats."""
        probabilities = softmax(outputs.target.logits.astype(np.float64), axis=1)
        mean = probabilities.mean(0)
        return float(entr(mean).sum() - entr(probabilities).sum(1).mean())


create = InformationMaximization
