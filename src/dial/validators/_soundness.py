"""Runs that have not lost the source while they adapted, among which one is then chosen.

A validator that looks at the target alone can be fooled by a network that is sure and wrong. What
such a network does to the source shows: the images that were held out of training are the same
for all runs, so two runs are compared image by image (McNemar's pairs). A run is set aside if the
best one is ahead of it by more than one standard error of the difference, which is the square
root of the number of images that only one of the two predicts right.
"""

from collections.abc import Sequence

import numpy as np

from dial.outputs import Outputs


def keep_the_source(runs: Sequence[Outputs]) -> list[bool]:
    """Of each run, whether it is as good on held-out source images as the best; True without any.

    Args:
        runs: of the same source, with the same images held out.
    """
    held = [run.held_out for run in runs if run.held_out is not None]
    if not held or len(held) < len(runs):
        return [True] * len(runs)
    right = np.array([seen.logits.argmax(1) == seen.labels for seen in held])
    best = right[right.sum(1).argmax()]
    lost, won = (best & ~right).sum(1), (~best & right).sum(1)
    return [bool(sound) for sound in lost - won <= np.sqrt(lost + won)]
