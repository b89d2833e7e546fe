"""Classes that seem to be absent or confused, in words; the target's labels have no part in it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dial.data.domain import abbreviate
from dial.reporting.metrics import shares

_EXPECTED = 8  # images that the source's share suggests, below which few or none tell nothing
_FEW = 0.25  # of the images that the source's share suggests
_NEAR = 0.2  # difference of two probabilities, up to which a class is nearly predicted
_LIKELY = 0.5  # part of the first probability that the second has at least
_IMAGES, _SHARE = 5, 0.1  # of a class's predictions that are nearly another's, to be worth a line
_PAIRS = 5

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]


def missing(
    classes: Sequence[str], source_counts: Ints, predicted: Ints, *, absent: Sequence[str] = ()
) -> list[str]:
    """Returns sentences about classes that the target seems to lack.

    Args:
        classes: the names of all `K`.
        source_counts: `(K,)`; all 0 without a source, and then all classes count as equally common.
        predicted: `(N,)`, of the target images.
        absent: names of the classes that the run itself found to be absent.
    """
    counts = np.bincount(predicted, minlength=len(classes)).tolist()
    has_source = bool(source_counts.any())
    common = source_counts if has_source else np.ones(len(classes), dtype=np.int64)
    suggested = (len(predicted) * shares(common)).tolist()
    none, few = [], []
    for name, count, expected in zip(classes, counts, suggested, strict=True):
        if name in absent or expected < _EXPECTED:
            continue
        if count == 0:
            none.append(name)
        elif has_source and count < _FEW * expected:
            few.append(f"{name} ({count}, not about {expected:.0f})")
    starts = {
        "The target seems to have no images of": absent,
        "No image is predicted as": none,
        "Predicted far less often than its share of the source suggests": few,
    }
    return [f"{start}: {abbreviate(names)}." for start, names in starts.items() if names]


def confused(
    classes: Sequence[str],
    predicted: Ints,
    confidence: Floats,
    *,
    runner_up: Ints,
    runner_up_confidence: Floats,
) -> list[str]:
    """Returns at most five sentences about pairs of classes that are hard to tell apart.

    An image is nearly predicted as its second likeliest class if the two probabilities are close
    and the second is at least half of the first. A pair has a line if that happens to at least five
    images and to a tenth of those predicted as the one class. Arrays are `(N,)`.
    """
    near = confidence - runner_up_confidence <= _NEAR
    near &= runner_up_confidence >= _LIKELY * confidence
    totals = np.bincount(predicted, minlength=len(classes)).tolist()
    pairs, counts = np.unique(
        np.stack([predicted[near], runner_up[near]], axis=1), axis=0, return_counts=True
    )
    found = {
        (first, second): count
        for (first, second), count in zip(pairs.tolist(), counts.tolist(), strict=True)
        if count >= max(_IMAGES, _SHARE * totals[first])
    }
    return [*_describe(classes, found, totals)][:_PAIRS]


def _describe(
    classes: Sequence[str], found: dict[tuple[int, int], int], totals: Sequence[int]
) -> Iterator[str]:
    """Yields a sentence for each pair, most images first; one for both directions."""
    told = set()
    for first, second in sorted(found, key=lambda pair: -found[pair]):
        if (second, first) in told:
            continue
        told.add((first, second))
        text = f"Images predicted as {classes[first]} are often nearly predicted as "
        text += f"{classes[second]} ({found[first, second]} of {totals[first]})"
        if (second, first) in found:
            text += f", and the other way round ({found[second, first]} of {totals[second]})"
        yield f"{text}."
