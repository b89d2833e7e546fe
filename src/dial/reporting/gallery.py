"""Galleries of target images: in which order they show them, and the thumbnails that are kept."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from dial.data.prepare import PreparedDomain

GALLERY = 36
"""Images that a gallery shows."""
_THUMBNAILS = 300  # kept in addition, so that a comparison with another run has some to show
_SIDE = 96

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
Bytes = npt.NDArray[np.uint8]


def by_change(predicted: dict[str, Ints], confidence: dict[str, Floats]) -> Ints:
    """Returns all rows, first those that adaptation changed most.

    First come confident predictions of another class than before, then the largest changes of
    confidence.
    """
    before, after = confidence["before"], confidence["after"]
    changed = predicted["before"] != predicted["after"]
    score = np.where(changed, 1 + (before + after) / 2, np.abs(before - after))
    return np.argsort(-score, kind="stable")


def by_certainty(confidence: Floats, runner_up: Floats | None) -> Ints:
    """Returns all rows, the least certain first.

    Certainty is the margin between the two largest probabilities, `(N,)` each; where the second
    is not known, it is the first.
    """
    return np.argsort(confidence if runner_up is None else confidence - runner_up, kind="stable")


def keep(
    target: PreparedDomain,
    predicted: dict[str, Ints],
    confidence: dict[str, Floats],
    runner_up: Floats | None,
) -> dict[str, Any]:
    """Returns names and thumbnails of images: the most changed, the least certain, and a sample."""
    rows = [target.pixels.order[:_THUMBNAILS], by_certainty(confidence["after"], runner_up)]
    if "before" in confidence:
        rows.append(by_change(predicted, confidence))
    kept = np.unique(np.concatenate([rows[0], *(order[:GALLERY] for order in rows[1:])]))
    images = target.pixels.read(kept)
    side = min(_SIDE, images.shape[1])
    pictures = (_jpeg(image, side) for image in images)
    names = target.images.names
    return {
        "gallery_names": {str(row): "/".join(Path(names[row]).parts[-2:]) for row in kept},
        "gallery_pictures": {str(row): jpeg for row, jpeg in zip(kept, pictures, strict=True)},
        "gallery_side": side,
    }


def _jpeg(image: Bytes, side: int) -> Bytes:
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    file = io.BytesIO()
    picture.resize((side, side), Image.Resampling.LANCZOS).save(file, "JPEG", quality=85)
    return np.frombuffer(file.getvalue(), np.uint8)
