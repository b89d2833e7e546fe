"""Accuracy on source images that were not trained on, by the source's own predictor.

The naive choice: it sees nothing of the target, and only tells a network that has come apart.
"""

from dial.selection.outputs import Outputs

NEEDS_HELD_OUT = True


def score(outputs: Outputs) -> float:
    """The share of held-out source images that are predicted as they are labelled."""
    held_out = outputs.held_out
    assert held_out is not None  # noqa: S101 - NEEDS_HELD_OUT
    return float(held_out.right().mean())
