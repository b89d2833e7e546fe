"""Accuracy of the source's predictor on held-out source images.

The naive choice: it sees nothing of the target, and only detects a network that has broken down.
"""

from dial.selection.outputs import Outputs
from dial.selection.validators.interface import Validator


class SourceAccuracy(Validator):
    """Accuracy on held-out source images."""

    needs_held_out = True

    def score(self, outputs: Outputs) -> float:
        """Returns the fraction of correct predictions."""
        return float(outputs.require_held_out().correct().mean())


create = SourceAccuracy
