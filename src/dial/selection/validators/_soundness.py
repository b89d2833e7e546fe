"""Comparison of runs on held-out source images, to set aside those that got worse there.

A validator that sees the target only is misled by a network that is confident and wrong. Such a
network also gets worse on the source. The held-out images are the same for all runs, so two runs
are compared image by image, as in McNemar's test: a run is set aside if the best one is ahead of
it by more than one standard error of the difference, the square root of the number of images that
exactly one of the two predicts correctly.
"""

from collections.abc import Sequence

import numpy as np

from dial.selection.outputs import Outputs


def correct_on_source(run: Outputs) -> list[bool]:
    """Returns whether each held-out source image is predicted correctly; empty without any."""
    return [] if run.held_out is None else run.held_out.correct().tolist()


def keep_the_source(runs: Sequence[Sequence[bool]]) -> list[bool]:
    """Returns for each run whether it is as good as the best on held-out source images.

    Args:
        runs: `correct_on_source` of each, for the same images in the same order.

    >>> keep_the_source([[True, True, True], [True, True, False], [True, False, False]])
    [True, True, False]
    """
    if not runs:
        return []
    correct = np.array(runs, dtype=bool)
    best = correct[correct.sum(1).argmax()]
    lost, won = (best & ~correct).sum(1), (~best & correct).sum(1)
    return [bool(sound) for sound in lost - won <= np.sqrt(lost + won)]
