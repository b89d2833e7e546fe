"""Accuracy on held-out source images of a classifier that learnt the target's predictions.

If predictions on the target are right, what is learnt from them works back on the source. Here a
linear classifier is trained on the features of the target, labelled by the run itself, in place
of a network trained anew. Ganin et al., "Domain-Adversarial Training of Neural Networks", 2016,
section 5.1.2, https://arxiv.org/abs/1505.07818
"""

import numpy as np

from dial.selection.outputs import Outputs
from dial.selection.validators._classifier import fit

NEEDS_HELD_OUT = True
_STRENGTH = 0.1


def score(outputs: Outputs) -> float:
    """The reverse classifier's accuracy; where one class is predicted, it always says that one."""
    held_out = outputs.held_out
    assert held_out is not None  # noqa: S101 - NEEDS_HELD_OUT
    predicted = outputs.target.logits.argmax(1)
    if len(np.unique(predicted)) == 1:
        return float(np.mean(held_out.labels == predicted[0]))
    classifier = fit(outputs.target.features, predicted, strength=_STRENGTH)
    guessed = classifier.predict(held_out.features.astype(np.float64))
    return float(np.mean(guessed == held_out.labels))
