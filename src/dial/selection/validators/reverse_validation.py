"""Accuracy on held-out source images of a classifier that was trained on the target's predictions.

If the predictions on the target are right, a classifier learnt from them also works on the
source. Ganin et al., "Domain-Adversarial Training of Neural Networks", 2016, section 5.1.2,
https://arxiv.org/abs/1505.07818

Departure: a linear classifier on the run's target features, labelled by the run's predictions,
takes the place of a network trained from scratch.
"""

import numpy as np

from dial.selection.outputs import Outputs
from dial.selection.validators.deep_embedded_validation import fit_classifier
from dial.selection.validators.interface import Validator

_STRENGTH = 0.1


class ReverseValidation(Validator):
    """Accuracy of the reverse classifier on held-out source images."""

    needs_held_out = True

    def score(self, outputs: Outputs) -> float:
        """Returns the accuracy; if a single class is predicted, of always predicting it."""
        held_out = outputs.require_held_out()
        predictions = outputs.target.logits.argmax(1)
        if len(np.unique(predictions)) == 1:
            return float(np.mean(held_out.labels == predictions[0]))
        classifier = fit_classifier(outputs.target.features, predictions, strength=_STRENGTH)
        reverse = classifier.predict(held_out.features.astype(np.float64))
        return float(np.mean(reverse == held_out.labels))


create = ReverseValidation
