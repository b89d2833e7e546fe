"""Gather a run's evidence, from what is seen when its training is over."""

import hashlib
import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from dial.data.domain import ImageFiles
from dial.data.folders import display
from dial.data.prepare import PreparedDomain
from dial.methods import Method
from dial.reporting.embedding import embed, separation
from dial.reporting.evidence import Cloud, Evidence, Gallery, View
from dial.reporting.shift import Distance, distance
from dial.selection.observation import SAMPLE, Observation
from dial.selection.outputs import Sight

POINTS = 150
"""Images of a domain in a picture of points: t-SNE takes its time."""
GALLERY = 36
"""Images that a report shows."""
_KEPT = 300  # thumbnails beyond those, so that a comparison with another run has some to show
_SIDE = 96

Rows = npt.NDArray[np.int64]


def gather(
    method: Method,
    sight: Sight,
    *,
    source: PreparedDomain,
    target: PreparedDomain,
    repeat: dict[str, Any],
) -> Evidence:
    """All that the report of a run shows."""
    assert source.labels is not None  # noqa: S101 - a source has them
    after, before, of_source, _ = sight
    views = _views(of_source, [after] if before is None else [after, before], target.pixels.order)
    layers = tuple(of_source.moments)
    return Evidence(
        classes=source.labels.classes,
        fingerprint=_fingerprint(target),
        adapts=method.adapts,
        without=method.without,
        source_counts=np.array([*source.labels.counts.values()], dtype=np.int64),
        labels=None if target.labels is None else target.labels.indices,
        before=None if before is None else views[1],
        after=views[0],
        layers=layers,
        shift_before=None if before is None else _shift(of_source, before, layers),
        shift_after=_shift(of_source, after, layers),
        sampled=(min(SAMPLE, len(of_source.logits)), min(SAMPLE, len(after.logits))),
        gallery=_gallery(target, views),
        repeat=repeat,
    )


def _shift(
    source: Observation, target: Observation, layers: tuple[str, ...]
) -> tuple[Distance, ...]:
    return tuple(distance(source.moments[name], target.moments[name]) for name in layers)


def _views(source: Observation, targets: list[Observation], order: Rows) -> list[View]:
    """Predictions of each, row by row, and the domains in its eyes; `order` has the rows seen."""
    features = _clouds(source.features, [target.features for target in targets])
    outputs = _clouds(source.logits, [target.logits for target in targets])
    by_row = np.argsort(order)
    views = []
    for target, *clouds in zip(targets, features, outputs, strict=True):
        confidence, predicted = target.logits[by_row].softmax(1).max(1)
        views.append(View(predicted.numpy(), confidence.numpy(), *clouds))
    return views


def _clouds(source: Tensor, targets: list[Tensor]) -> list[Cloud]:
    """All in one embedding, so that they can be compared; the first images stand for all."""
    values = [cloud[:SAMPLE].numpy() for cloud in (source, *targets)]
    few = [cloud[:POINTS] for cloud in values]
    points = np.split(embed(np.concatenate(few)), np.cumsum([len(cloud) for cloud in few])[:-1])
    return [
        Cloud(points[0], own, separation(values[0], value))
        for own, value in zip(points[1:], values[1:], strict=True)
    ]


def most_changed(before: View, after: View) -> Rows:
    """All rows, first those that are sure of another class than before, then what else moved."""
    changed = before.predicted != after.predicted
    sure = 1 + (before.confidence + after.confidence) / 2
    moved = np.abs(before.confidence - after.confidence)
    return np.argsort(-np.where(changed, sure, moved), kind="stable")


def _gallery(target: PreparedDomain, views: list[View]) -> Gallery:
    """Thumbnails of what changed most, of what is least sure, and of a sample of the rest."""
    wanted = [target.pixels.order[:_KEPT], np.argsort(views[0].confidence)[:GALLERY]]
    if len(views) > 1:
        wanted.append(most_changed(views[1], views[0])[:GALLERY])
    rows = np.unique(np.concatenate(wanted))
    images = target.pixels.read(rows)
    side = min(_SIDE, images.shape[1])
    if isinstance(target.images, ImageFiles):
        paths = (target.images.paths[row] for row in rows)
        names = tuple(display("/".join(path.parts[-2:])) for path in paths)
    else:
        names = tuple(f"image {row}" for row in rows)
    return Gallery(rows, names, tuple(_jpeg(image, side) for image in images), side)


def _jpeg(image: npt.NDArray[np.uint8], side: int) -> bytes:
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    file = io.BytesIO()
    picture.resize((side, side), Image.Resampling.LANCZOS).save(file, "JPEG", quality=85)
    return file.getvalue()


def _fingerprint(target: PreparedDomain) -> str:
    """Of the last two parts of all paths: the folder may have moved since."""
    if isinstance(target.images, ImageFiles):
        names = ["/".join(path.parts[-2:]) for path in target.images.paths]
    else:
        names = [target.name, str(len(target.images))]
    text = "\n".join(names).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
