"""Which source images lie next to each target image, and next to each other.

Images of one class lie close together, within a domain and across domains, if their features are
not made for the very labels that are asked about. So features come from a network that was not
trained on these images, or the images that ask are ones that it was not trained on.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn.functional import normalize

from dial.methods import nearest

NEIGHBORS = 5

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """Labels of the source images nearest to each image, by cosine."""

    of_target: Labels
    """`(M, k)`, of the source images nearest to each target image."""
    of_source: Labels
    """`(N, k)`, of the source images nearest to each of some source images, without itself."""
    labels: Labels
    """`(N,)`, of these source images themselves."""


def look_around(
    source: Tensor, labels: Tensor, target: Tensor, *, asking: tuple[Tensor, Tensor] | None = None
) -> Neighborhood:
    """Returns the neighborhood of target images `(M, D)` and of source images `(N, D)`.

    The mean of each domain is removed. There are no more neighbors than a class has images.

    Args:
        source: features of labelled images.
        labels: `(N,)`.
        target: features of the images to ask about.
        asking: features and labels of source images that are not among the others; by default
            each source image asks the rest.
    """
    mean, labels = source.mean(0), labels.cpu()
    count = max(1, min(NEIGHBORS, len(labels) // len(labels.unique()) - (asking is None)))
    known, own = normalize(source - mean), labels
    of_target = nearest(normalize(target - target.mean(0)), known, count)[1]
    if asking is None:
        of_source = nearest(known, known, count, itself=True)[1]
    else:
        features, own = asking
        of_source = nearest(normalize(features - mean), known, count)[1]
    found = (labels[of_target.cpu()], labels[of_source.cpu()], own.cpu())
    return Neighborhood(*(part.numpy() for part in found))


def agree(neighbors: Labels, labels: Labels) -> npt.NDArray[np.float64]:
    """Returns `(M,)`, the share of each image's neighbors `(M, k)` that have its label.

    >>> agree(np.array([[1, 1], [1, 2]]), np.array([1, 2])).tolist()
    [1.0, 0.5]
    """
    shares: npt.NDArray[np.float64] = (neighbors == labels[:, None]).mean(1)
    return shares
