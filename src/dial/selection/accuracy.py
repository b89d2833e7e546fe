"""How accurate a run is on a target without labels: an estimate, and a warning where it got worse.

Average thresholded confidence: on held-out source images a threshold of the score is found such
that the share of images above it is their accuracy; the share of target images above it is the
estimate. The score is the negative entropy of the probabilities, after temperature scaling on the
same held-out images. Garg, Balakrishnan, Lipton, Neyshabur and Sedghi, "Leveraging Unlabeled Data
to Predict Out-of-Distribution Performance", ICLR 2022, https://arxiv.org/abs/2201.04234

It takes for granted that confidence means the same on both domains. Minimising the target's
entropy makes a network sure of the target whether it is right or not, so after it the estimate
is usually too high.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dial.data.holdout import LEAST
from dial.selection import validators
from dial.selection.outputs import Outputs, Seen
from dial.selection.validators._probabilities import Doubles, entropy, log_softmax, softmax

_WRONG = 10  # wrong predictions that a threshold needs, to be more than a guess
_TEMPERATURES = np.geomspace(0.05, 20, 241)


def judge(outputs: Outputs, *, holdout: float) -> dict[str, Any]:
    """What a run's result tells beside its accuracy: the estimate, and warnings.

    Args:
        outputs: of the run.
        holdout: the share of the source that was to be held out.
    """
    told: dict[str, Any] = {"estimated_accuracy": None, "warnings": [*_got_worse(outputs)]}
    if outputs.held_out is not None:
        told["estimated_accuracy"] = estimate(outputs.held_out, outputs.target)
        told |= _doubt(outputs.held_out)
    elif holdout:
        told["no_estimate"] = f"the source is too small to hold {LEAST} images out of training"
    else:
        told["no_estimate"] = "no part of the source was held out of training"
    return told


def estimate(held_out: Seen, target: Seen) -> float:
    """The estimated share of target images that are predicted right."""
    assert held_out.labels is not None  # noqa: S101 - they are the source's
    temperature = find_temperature(held_out.logits, held_out.labels)
    known, asked = (-entropy(softmax(seen.logits / temperature)) for seen in (held_out, target))
    right = int(held_out.right().sum())
    if right == 0:
        return 0.0
    threshold = np.sort(known)[len(known) - right]  # so many images are at or above it
    return float(np.mean(asked >= threshold))


def _doubt(held_out: Seen) -> dict[str, str]:
    """What speaks against the estimate: a threshold that rests on a handful of images."""
    right = held_out.right()
    wrong, count = int((~right).sum()), len(right)
    if wrong >= _WRONG:
        return {}
    return {
        "estimate_doubt": f"it rests on the {wrong} of {count} held-out images that are predicted "
        "wrong, too few to tell what confidence an error has"
    }


def find_temperature(logits: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> float:
    """The temperature from 0.05 to 20 whose probabilities have the least cross-entropy."""
    rows = np.arange(len(labels))

    def loss(temperature: float) -> float:
        logs: Doubles = log_softmax(logits / temperature)
        return -float(logs[rows, labels].mean())

    return float(min(_TEMPERATURES, key=loss))


def _got_worse(outputs: Outputs) -> list[str]:
    """A sentence if the predictor scores below the one without adaptation on a validator.

    Where there is a held-out source it is one that does not contain what was minimised.
    """
    if outputs.unadapted is None:
        return []
    name = "deep_embedded_validation" if outputs.held_out is not None else validators.DEFAULT
    after = validators.score(name, outputs)
    before = validators.score(name, replace(outputs, target=outputs.unadapted))
    if after >= before:
        return []
    return [
        f"adaptation seems to hurt: {name} of the target is {after:.3g} with it and "
        f"{before:.3g} without; compare with a run of --method source_only"
    ]
