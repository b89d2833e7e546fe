"""What a finished run leaves for its report: predictions, distances, points, thumbnails."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dial import tensorfiles
from dial.errors import DialError
from dial.reporting.shift import Distance

NAME = "evidence.safetensors"
VERSION = 1

Array = npt.NDArray[Any]

_PLAIN = (
    *("classes", "fingerprint", "adapts", "without", "layers", "sampled", "repeat"),
    *("shift_before", "shift_after"),
)


@dataclass(frozen=True, eq=False)
class Cloud:
    """Images of both domains as points `(M, 2)`, near each other where the network is alike."""

    source: npt.NDArray[np.float32]
    target: npt.NDArray[np.float32]
    separation: float
    """Of the domains, measured in all dimensions: 0 is mixed, 1 is apart."""


@dataclass(frozen=True, eq=False)
class View:
    """What one predictor makes of the target: `(N,)` each, and the two domains in its eyes."""

    predicted: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float32]
    """The probability of the predicted class."""
    features: Cloud
    """By its last hidden features."""
    outputs: Cloud
    """By its logits."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """Some of the target's images, small: their rows, names and JPEG files."""

    rows: npt.NDArray[np.int64]
    names: tuple[str, ...]
    pictures: tuple[bytes, ...]
    side: int
    """Pixels that a picture is wide and high."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that a report shows beyond the run's own records."""

    classes: tuple[str, ...]
    fingerprint: str
    """Equal for runs on the same images of the target."""
    adapts: bool
    without: str
    """What `before` is, in words."""
    source_counts: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64] | None
    """Of the target, for scoring."""
    before: View | None
    after: View
    layers: tuple[str, ...]
    shift_before: tuple[Distance, ...] | None
    shift_after: tuple[Distance, ...]
    sampled: tuple[int, int]
    """How many images of source and target the distances are over."""
    gallery: Gallery
    repeat: dict[str, Any]
    """Arguments of the run that its settings do not hold."""

    def against(self, baseline: "Evidence", *, without: str) -> "Evidence":
        """The same with another run's predictions as those without adaptation.

        Raises:
            DialError: that run has other classes, or another target.
        """
        fix = "take a finished run with the same source and target, such as one of source_only"
        if baseline.classes != self.classes:
            raise DialError(
                wanted=f"a baseline with the run's {len(self.classes)} classes",
                got=f"one with {len(baseline.classes)}, or with others",
                fix=fix,
            )
        if baseline.fingerprint != self.fingerprint:
            raise DialError(
                wanted="a baseline on the same target images",
                got=f"one on {len(baseline.after.predicted)} others "
                f"(the run has {len(self.after.predicted)})",
                fix=fix,
            )
        return replace(self, before=baseline.after, without=without)


def save(path: Path, evidence: Evidence) -> None:
    """Write it as safetensors: arrays, and the rest as JSON in the file's metadata."""
    gallery = evidence.gallery
    arrays: dict[str, Array | None] = {
        "source_counts": evidence.source_counts,
        "labels": evidence.labels,
        "gallery.rows": gallery.rows,
        "gallery.lengths": np.array([len(picture) for picture in gallery.pictures], np.int64),
        "gallery.pictures": np.frombuffer(b"".join(gallery.pictures), np.uint8),
    }
    about: dict[str, Any] = {name: getattr(evidence, name) for name in _PLAIN}
    about |= {"version": VERSION, "names": gallery.names, "side": gallery.side}
    for name, view in (("before", evidence.before), ("after", evidence.after)):
        if view is None:
            continue
        arrays |= {f"{name}.predicted": view.predicted, f"{name}.confidence": view.confidence}
        for part, cloud in (("features", view.features), ("outputs", view.outputs)):
            about[f"{name}.{part}"] = cloud.separation
            arrays |= {f"{name}.{part}.source": cloud.source, f"{name}.{part}.target": cloud.target}
    present = {name: torch.tensor(array) for name, array in arrays.items() if array is not None}
    tensorfiles.save(path, present, about=about)


def load(folder: Path) -> Evidence:
    """The evidence in a run's folder.

    Raises:
        DialError: there is none, a damaged one, or one of another version.
    """
    path, wanted = folder / NAME, "the evidence for a report"
    fix = "make the run again with this version of dial, in another folder"
    if not path.exists():
        raise DialError(
            wanted=f"{wanted} in {path}",
            got="none: the run was told to make no report, could not, or is of an older version",
            fix=fix,
        )
    about, tensors = tensorfiles.load(path, wanted=wanted, version=VERSION, fix=fix)
    return _restore(about, {name: tensor.numpy() for name, tensor in tensors.items()})


def _restore(about: dict[str, Any], arrays: dict[str, Array]) -> Evidence:
    ends = np.cumsum(arrays["gallery.lengths"])[:-1]
    pictures = np.split(arrays["gallery.pictures"], ends)
    return Evidence(
        classes=tuple(about["classes"]),
        fingerprint=about["fingerprint"],
        adapts=about["adapts"],
        without=about["without"],
        source_counts=arrays["source_counts"],
        labels=arrays.get("labels"),
        before=_view("before", about, arrays) if "before.predicted" in arrays else None,
        after=_view("after", about, arrays),
        layers=tuple(about["layers"]),
        shift_before=None if about["shift_before"] is None else _distances(about["shift_before"]),
        shift_after=_distances(about["shift_after"]),
        sampled=(about["sampled"][0], about["sampled"][1]),
        gallery=Gallery(
            arrays["gallery.rows"],
            tuple(about["names"]),
            tuple(picture.tobytes() for picture in pictures),
            about["side"],
        ),
        repeat=about["repeat"],
    )


def _distances(pairs: list[list[float]]) -> tuple[Distance, ...]:
    return tuple(Distance(*pair) for pair in pairs)


def _view(name: str, about: dict[str, Any], arrays: dict[str, Array]) -> View:
    clouds = {
        part: Cloud(
            arrays[f"{name}.{part}.source"],
            arrays[f"{name}.{part}.target"],
            about[f"{name}.{part}"],
        )
        for part in ("features", "outputs")
    }
    return View(arrays[f"{name}.predicted"], arrays[f"{name}.confidence"], **clouds)
