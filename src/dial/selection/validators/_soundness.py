"""Runs that have not lost the source while they adapted, among which one is then chosen.

A validator that looks at the target alone can be fooled by a network that is sure and wrong. What
such a network does to the source shows: the images that were held out of training are the same
for all runs, so two runs are compared image by image (McNemar's pairs). A run is set aside if the
best one is ahead of it by more than one standard error of the difference, which is the square
root of the number of images that only one of the two predicts right.
"""

from collections.abc import Sequence

import numpy as np

from dial.selection.outputs import Outputs


def right_of_source(run: Outputs) -> list[bool]:
    """Of each held-out source image, whether it is predicted right; nothing where there is none."""
    seen = run.held_out
    return [] if seen is None else seen.right().tolist()


def keep_the_source(runs: Sequence[Sequence[bool]]) -> list[bool]:
    """Of each run, whether it is as good on held-out source images as the best.

    Args:
        runs: `right_of_source` of each, of the same images in the same order.

    >>> keep_the_source([[True, True, True], [True, True, False], [True, False, False]])
    [True, True, False]
    """
    if not runs:
        return []
    right = np.array(runs, dtype=bool)
    best = right[right.sum(1).argmax()]
    lost, won = (best & ~right).sum(1), (~best & right).sum(1)
    return [bool(sound) for sound in lost - won <= np.sqrt(lost + won)]
