"""Whether adaptation changed predictions for the worse: a test without labels of the target.

Of the images whose prediction is another one with adaptation than without, the nearest source
images are asked: how many have the former label, how many the new one? Former predictions were
learnt from the source alone, so its images favor them where neither is better, by `MARGIN` at most.
Images that went from one class to the same other one err together, so a group of them has one say:
the sign of each group's sum, with the margin added, is flipped at random, which gives the
distribution of the total by chance. A chance of at most one in twenty is significant.

Neighbors by the network with adaptation and by the one without count alike: each favors its own
predictions. Those by a pretrained network would favor the former ones, which are closer to it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dial.selection.neighborhood import Labels, agree
from dial.selection.outputs import Outputs, find_neighbors

SIGNIFICANT = 0.05
MARGIN = 0.2
"""Former predictions were ahead by up to 0.12 of the neighbors in runs that gained."""
_DRAWS = 10_000


class Comparison(NamedTuple):
    """What adaptation did to the predictions of `images` target images."""

    images: int
    changed: int
    """Images whose prediction is another one."""
    support: float
    """The mean share of their neighbors with the new label, less that with the former one."""
    chance: float
    """The probability of as small a support, if former predictions are ahead by `MARGIN`."""

    @property
    def hurts(self) -> bool:
        """Whether the former predictions are significantly better."""
        return self.support < -MARGIN and self.chance <= SIGNIFICANT


def compare(outputs: Outputs) -> Comparison | None:
    """Returns the comparison; None if there is no predictor without adaptation, or no source."""
    if outputs.unadapted is None or outputs.training is None:
        return None
    target, unadapted = outputs.target, outputs.unadapted
    own = replace(outputs, before=None)
    spaces = [find_neighbors(own), find_neighbors(replace(own, target=unadapted))]
    new, former = (each.logits[: len(spaces[0])].argmax(1) for each in (target, unadapted))
    return weigh(new, former, spaces)


def weigh(new: Labels, former: Labels, spaces: Sequence[Labels]) -> Comparison:
    """Returns the comparison of two predictions for the same images.

    Args:
        new: `(M,)`, classes.
        former: `(M,)`.
        spaces: labels of the source images nearest to each image, `(M, k)`, by each network.
    """
    is_changed = new != former
    votes = np.mean([agree(space, new) - agree(space, former) for space in spaces], axis=0)
    pairs = np.stack([former, new], axis=1)[is_changed]
    group = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    sums = np.bincount(group, weights=votes[is_changed] + MARGIN).astype(np.float64)
    changed = int(is_changed.sum())
    support = float(votes[is_changed].mean()) if changed else 0.0
    return Comparison(len(new), changed, support, chance(sums))


def chance(sums: npt.NDArray[np.float64]) -> float:
    """Returns the probability that random signs make the total as small as it is."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (_DRAWS, len(sums)))
    as_small = signs @ np.abs(sums) <= sums.sum() + 1e-9
    return float((1 + as_small.sum()) / (1 + _DRAWS))
