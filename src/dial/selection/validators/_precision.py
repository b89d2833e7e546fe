"""Which runs score as well as the best one, as far as so many target images can tell.

Other images would have given other scores. How much the difference of two runs varies is estimated
by the jackknife (Quenouille 1956, Tukey 1958): both are scored without a twentieth of the images,
each twentieth in turn. A run counts as equally good if the best one is ahead by no more than two
standard errors, which chance alone would do about once in twenty times. The simplest of such runs
is then a good choice (Breiman et al. 1984, for pruning trees).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dial.selection.outputs import Outputs

_GROUPS = 20
_ERRORS = 2


def score_without_groups(score: Callable[[Outputs], float], outputs: Outputs) -> list[float]:
    """Returns the scores without each group of target images; empty for a single image."""
    outputs = outputs.with_features()
    target = outputs.target
    groups = np.arange(len(target.logits)) % _GROUPS
    parts = (groups != group for group in range(min(_GROUPS, len(groups))))
    return [
        score(
            replace(
                outputs,
                target=replace(target, logits=target.logits[p], features=target.features[p]),
            )
        )
        for p in parts
        if p.any()
    ]


def as_good_as_the_best(
    scores: Sequence[float], without_groups: Sequence[Sequence[float]]
) -> list[bool]:
    """Returns for each run whether its score is within two standard errors of the best.

    Args:
        scores: of the runs.
        without_groups: `score_without_groups` of each, for the same images in the same order.

    >>> as_good_as_the_best([1.0, 0.9, 0.5], [[1.05, 0.95], [0.9, 0.9], [0.6, 0.4]])
    [True, True, False]
    """
    if not scores:
        return []
    best = int(np.argmax(scores))
    ahead = scores[best] - np.asarray(scores)
    differences = np.asarray(without_groups)[best] - np.asarray(without_groups)
    count = differences.shape[1]
    error = differences.std(axis=1) * np.sqrt(max(count - 1, 0)) if count else np.zeros(len(ahead))
    return [bool(equal) for equal in ahead <= _ERRORS * error]
