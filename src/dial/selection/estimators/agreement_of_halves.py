"""The share of target images on which two heads agree, each learnt from half of the source.

Heads are fitted to the features of the finished network. The rate at which two models from
different samples disagree is their error rate, if their ensemble is calibrated. Jiang, Nagarajan,
Baek and Kolter, "Assessing Generalization of SGD via Disagreement", ICLR 2022,
https://arxiv.org/abs/2106.13799
"""

import numpy as np
import torch

from dial.methods import fit_head
from dial.selection.estimators.interface import Estimator
from dial.selection.outputs import Outputs


class AgreementOfHalves(Estimator):
    """Agreement of two heads from halves of the source."""

    def lacks(self, outputs: Outputs) -> str:
        """Returns whether there is no source, or a class with a single image."""
        if outputs.training is None:
            return "there are no source images"
        counts = np.bincount(outputs.training.labels, minlength=outputs.target.logits.shape[1])
        return "" if counts.min() > 1 else "a class has a single source image"

    def estimate(self, outputs: Outputs) -> float:
        """Returns the share of target images on which the heads agree."""
        assert outputs.training is not None  # noqa: S101 - nothing is lacking
        labels = torch.from_numpy(outputs.training.labels)
        source, target = map(torch.from_numpy, (outputs.training.features, outputs.target.features))
        turn = torch.empty_like(labels)  # the first image of its class, the second, ...
        for label in labels.unique():
            turn[labels == label] = torch.arange(int((labels == label).sum()))
        one, other = (
            fit_head(
                [(source[part], target)], labels[part], num_classes=outputs.target.logits.shape[1]
            ).labels
            for part in (turn % 2 == 0, turn % 2 == 1)
        )
        return float((one == other).double().mean())


create = AgreementOfHalves
