"""Target predictions that are sure one by one and diverse together (information maximisation).

`H(mean_i p_i) - mean_i H(p_i)`, the mutual information of images and predictions: from 0 to
`log K`, which is reached where every image is sure of its class and all classes are as frequent.
Used to choose settings by Musgrave, Belongie and Lim, "Three New Validators and a Large-Scale
Benchmark Ranking for Unsupervised Domain Adaptation", 2022, https://arxiv.org/abs/2208.07360

A method that minimises the target's entropy minimises a part of it, so it is biased towards
large weights of that loss until predictions collapse into few classes.
"""

from dial.selection.outputs import Outputs
from dial.selection.validators._probabilities import entropy, softmax

NEEDS_HELD_OUT = False


def score(outputs: Outputs) -> float:
    """In nats."""
    probabilities = softmax(outputs.target.logits)
    return float(entropy(probabilities.mean(0)) - entropy(probabilities).mean())
