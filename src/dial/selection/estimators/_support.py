"""How far the nearest source images support predictions, beside how far they support the truth."""

import numpy as np
import numpy.typing as npt

from dial.selection.neighborhood import Neighborhood, agree
from dial.selection.outputs import Floats


def relative_support(around: Neighborhood, logits: Floats) -> float:
    """Returns the support of the target's predictions, as a part of the expected one.

    Of the source images nearest to each target image, some have the label that is predicted for
    it. Their share is divided by the share that source images of the same classes find for their
    own labels: what predictions that are all correct would have, if the domains were one. Classes
    are weighted as they are predicted, so that the target may have another mix of them.
    """
    predicted = logits[: len(around.of_target)].argmax(1)
    support = agree(around.of_target, predicted).mean()
    expected = expected_support(around, logits.shape[1])[predicted].mean()
    return float(np.clip(support / max(expected, 1e-9), 0, 1))


def expected_support(around: Neighborhood, num_classes: int) -> npt.NDArray[np.float64]:
    """Returns `(K,)`, the share that source images of each class find for their own label.

    A class of which no source image asks has the mean of all images.
    """
    shares = agree(around.of_source, around.labels)
    counts = np.bincount(around.labels, minlength=num_classes)
    sums = np.bincount(around.labels, weights=shares, minlength=num_classes)
    expected: npt.NDArray[np.float64]
    expected = np.where(counts, sums / np.maximum(counts, 1), shares.mean())
    return expected
