"""The record that a finished run leaves for its report, in `evidence.safetensors`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dial import files
from dial.data.prepare import PreparedDomain, PreparedSource
from dial.errors import DialError, missing_extra
from dial.files.records import require_arrays, require_type
from dial.methods import Method
from dial.reporting import gallery
from dial.reporting.embedding import embed, separation
from dial.reporting.shift import distance
from dial.selection.outputs import SAMPLE, Outputs

NAME = "evidence.safetensors"
VERSION = 3
POINTS = 150
"""Images of a domain that are embedded: t-SNE takes its time."""
_WITHOUT_RUNNER_UP = 2  # the version before
_KINDS: dict[str, Any] = {
    "classes": list[str],
    "fingerprint": str,
    "adapts": bool,
    "without": str,
    "separation": dict[str, float],
    "layers": list[str],
    "sampled": list[int],
    "gallery_names": dict[str, str],
    "gallery_side": int,
}
_SHAPES = {  # as `require_arrays` wants them
    "source_counts": "K int",
    "labels": "N K",
    "predicted": "N K",
    "confidence": "N float",
    "runner_up": "N K",
    "runner_up_confidence": "N float",
    "points": "M2 float",
    "shift": "L2 float",
    "gallery_pictures": "J int",
}
_DICTS = ("predicted", "confidence", "points", "shift", "gallery_pictures")  # of arrays

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Record:
    """All that a report shows beyond config.json, result.json and metrics.jsonl.

    Dicts of predictors have the key "after", the finished one, and where there is one also
    "before", the predictor without adaptation. There are `N` target images and `K` classes.
    """

    classes: tuple[str, ...]
    fingerprint: str
    """Equal for runs on the same target images."""
    adapts: bool
    without: str
    """A description of the predictor without adaptation; empty if there is none."""
    source_counts: Ints
    """Source images of each class, `(K,)`; all 0 if the run had no source."""
    labels: Ints | None
    """Of the target, `(N,)`, for scoring only."""
    predicted: dict[str, Ints]
    """`(N,)`, by predictor."""
    confidence: dict[str, Floats]
    """Probability of the predicted class, `(N,)`, by predictor."""
    points: dict[str, Floats]
    """Embedded images, `(M, 2)`, by predictor, layer (features or outputs, which are the logits)
    and domain, such as "after.features.source"."""
    separation: dict[str, float]
    """Of the domains, by predictor and layer, such as "after.features": 0 is mixed, 1 is apart."""
    layers: tuple[str, ...]
    """Names of the `L` normalization layers."""
    shift: dict[str, Floats]
    """Distance of location and of scale between the domains, `(L, 2)`, by predictor."""
    sampled: tuple[int, int]
    """Number of source and target images that the shift is estimated from."""
    gallery_names: dict[str, str]
    """File names of some target images, by row."""
    gallery_pictures: dict[str, Bytes]
    """Their thumbnails, as JPEG files."""
    gallery_side: int
    """Width and height of a thumbnail in pixels."""
    runner_up: Ints | None = None
    """The second likeliest class, `(N,)`, by the finished predictor; None in older records, and
    where there is only one class."""
    runner_up_confidence: Floats | None = None
    """Its probability, `(N,)`."""

    def against(self, baseline: "Record", *, without: str) -> "Record":
        """Returns a copy with the predictions of another run as those without adaptation.

        Raises:
            DialError: the baseline has other classes or other target images.
        """
        fix = "take a finished run with the same source and target, such as one of source_only"
        if baseline.classes != self.classes:
            wanted = f"a baseline with the run's {len(self.classes)} classes"
            got = f"one with {len(baseline.classes)}, or with others"
            raise DialError(wanted=wanted, got=got, fix=fix)
        if baseline.fingerprint != self.fingerprint:
            images, others = (len(run.predicted["after"]) for run in (self, baseline))
            got = f"one on {others} others (the run has {images})"
            raise DialError(wanted="a baseline on the same target images", got=got, fix=fix)
        changes: dict[str, Any] = {}
        for field in ("predicted", "confidence", "points", "separation"):
            after = [pair for pair in getattr(baseline, field).items() if "after" in pair[0]]
            before = {key.replace("after", "before"): value for key, value in after}
            changes[field] = getattr(self, field) | before
        return replace(self, without=without, **changes)


def save(path: Path, record: Record) -> None:
    """Write arrays as safetensors, those of a dict as `field.key`, and other values as JSON."""
    arrays, values = {}, {"version": VERSION}
    for name, value in vars(record).items():
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif name in _DICTS:
            arrays |= {f"{name}.{key}": array for key, array in value.items()}
        else:
            values[name] = value
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    files.save_tensors(path, tensors, about=values)


def load(folder: Path) -> Record:
    """Returns the record of a run; those of older versions can be read too.

    Raises:
        DialError: no record, a damaged one, or one of another version.
    """
    path, wanted = folder / NAME, "the evidence for a report"
    fix = "make the run again with this version of dial, in another folder"
    if not path.exists():
        got = "none: the run was made without a report, or could not record it, or is too old"
        raise DialError(wanted=f"{wanted} in {path}", got=got, fix=fix)
    former = 1, _WITHOUT_RUNNER_UP
    values, tensors = files.load_tensors(
        path, wanted=wanted, version=VERSION, former=former, fix=fix
    )
    version = values.pop("version")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    try:
        found = (_from_version_1 if version == 1 else _from_file)(values, arrays)
        _require_sound(found)
    except (KeyError, TypeError, ValueError) as error:
        got = f"a damaged file ({type(error).__name__}: {error})"
        raise DialError(wanted=f"{wanted} in {path}", got=got, fix=fix) from error
    return found


def _from_file(values: dict[str, Any], arrays: dict[str, Any]) -> Record:
    values |= {field: {} for field in _DICTS}  # one may be empty
    for name, array in arrays.items():
        field, _, key = name.partition(".")
        if field in _DICTS:
            values[field][key] = array
        else:
            values[field] = array
    return Record(**values)


def _require_sound(record: Record) -> None:
    """Refuse values of other types, and arrays that do not fit each other, with a ValueError."""
    for field, kind in _KINDS.items():
        value = getattr(record, field)
        require_type([*value] if isinstance(value, tuple) else value, kind, name=field)
    count = len(record.predicted["after"])
    if not count:
        raise ValueError("no predictions")
    sizes = {"K": len(record.classes), "L": len(record.layers), "N": count, "2": 2}
    for name in _SHAPES:
        value = getattr(record, name)
        for array in value.values() if name in _DICTS else (value,):
            require_arrays({name: array}, _SHAPES, dict(sizes))
    _require_keys(record)


def _require_keys(record: Record) -> None:
    """Refuse a record that lacks what belongs to what it has, with a KeyError."""
    predictors = ("after", *(("before",) if "before" in record.predicted else ()))
    layers = [f"{each}.{layer}" for each in predictors for layer in ("features", "outputs")]
    wanted: dict[str, Sequence[str]] = {"predicted": predictors, "confidence": predictors}
    wanted["shift"] = predictors if record.layers else ()
    wanted["separation"] = layers if record.points else ()
    points = [f"{layer}.{domain}" for layer in layers for domain in ("source", "target")]
    wanted["points"] = points if record.points else ()
    wanted["gallery_pictures"] = [*record.gallery_names]
    for field, keys in wanted.items():
        missing = [key for key in keys if key not in getattr(record, field)]
        if missing:
            raise KeyError(f"{field}.{missing[0]}")


def _from_version_1(values: dict[str, Any], arrays: dict[str, Any]) -> Record:
    rows = [str(row) for row in arrays.pop("gallery.rows")]
    ends = np.cumsum(arrays.pop("gallery.lengths"))[:-1]
    pictures = np.split(arrays.pop("gallery.pictures"), ends)
    del values["repeat"]  # config.json has it now
    shift = {key: values.pop(f"shift_{key}") for key in ("before", "after")}
    for field in ("predicted", "confidence"):  # were named "after.predicted"
        keys = [name.removesuffix(f".{field}") for name in arrays if name.endswith(field)]
        values[field] = {key: arrays.pop(f"{key}.{field}") for key in keys}
    return Record(
        labels=arrays.pop("labels", None),
        source_counts=arrays.pop("source_counts"),
        points=arrays,
        separation={name: values.pop(name) for name in [*values] if "." in name},
        shift={key: _pairs(pairs) for key, pairs in shift.items() if pairs is not None},
        gallery_names=dict(zip(rows, values.pop("names"), strict=True)),
        gallery_pictures=dict(zip(rows, pictures, strict=True)),
        gallery_side=values.pop("side"),
        **values,
    )


def record(
    method: Method,
    outputs: Outputs,
    *,
    sources: Sequence[PreparedSource],
    target: PreparedDomain,
    classes: Sequence[str] = (),
) -> Record:
    """Returns the record of a finished run.

    Args:
        method: the run's.
        outputs: the run's `Outputs`, with images in the order of their content.
        sources: the labelled domains, in one numbering of the classes; none for a run that went on
            from a finished model.
        classes: all of them; by default the sources'.
        target: its labels, if any, are recorded for scoring.

    Raises:
        DialError: scikit-learn is not installed.
    """
    classes = classes or sources[0].labels.classes
    counts = np.zeros(len(classes), dtype=np.int64)
    for source in sources:
        counts += np.array([*source.labels.counts.values()])
    training, predictors = outputs.training, {"after": outputs.target}
    if outputs.unadapted is not None:
        predictors["before"] = outputs.unadapted
    points: dict[str, Floats] = {}
    separations: dict[str, float] = {}
    try:
        if training is not None:
            points, separations = _embed(training, predictors)
    except ImportError as error:
        raise missing_extra(error, "report") from error
    predicted, confidence, shift = {}, {}, {}
    second: Ints | None = None
    second_confidence: Floats | None = None
    for key, observation in predictors.items():
        logits = np.asarray(observation.logits)[np.argsort(target.pixels.order)]  # row by row
        probabilities = torch.from_numpy(logits).softmax(1)
        predicted[key], confidence[key] = _likeliest(probabilities)
        if key == "after" and len(classes) > 1:
            others = probabilities.scatter(1, torch.from_numpy(predicted[key])[:, None], -1.0)
            second, second_confidence = _likeliest(others)
        if training is not None:
            names = training.moments
            moments = [(training.moments[name], observation.moments[name]) for name in names]
            shift[key] = _pairs([distance(*pair) for pair in moments])
    return Record(
        classes=tuple(classes),
        fingerprint=target.images.fingerprint,
        adapts=method.adapts,
        without=method.without,
        source_counts=counts,
        labels=None if target.labels is None else target.labels.indices,
        predicted=predicted,
        confidence=confidence,
        points=points,
        separation=separations,
        layers=tuple(training.moments) if training else (),
        shift=shift,
        sampled=(
            min(SAMPLE, len(training.logits)) if training else 0,
            min(SAMPLE, len(target.pixels)),
        ),
        runner_up=second,
        runner_up_confidence=second_confidence,
        **gallery.keep(target, predicted, confidence, second_confidence),
    )


def _likeliest(probabilities: Tensor) -> tuple[Ints, Floats]:
    """Returns the class with the largest probability, and that, for each row."""
    largest = probabilities.max(1)
    return largest.indices.numpy(), largest.values.numpy()


def _pairs(distances: Any) -> Floats:
    return np.array(distances, np.float64).reshape(-1, 2)  # also where there are none


def _embed(source: Any, predictors: dict[str, Any]) -> tuple[dict[str, Floats], dict[str, float]]:
    """Returns points and separations, from the first images of the domains.

    All predictors share an embedding, so that their pictures can be compared.
    """
    points: dict[str, Floats] = {}
    separations = {}
    for layer, field in {"features": "features", "outputs": "logits"}.items():
        observations = (source, *predictors.values())
        values = [np.asarray(getattr(each, field))[:SAMPLE] for each in observations]
        few = [value[:POINTS] for value in values]
        embedded = embed(np.concatenate(few))
        of_source, *of_targets = np.split(embedded, np.cumsum([len(value) for value in few])[:-1])
        for key, of_target, value in zip(predictors, of_targets, values[1:], strict=True):
            points |= {f"{key}.{layer}.source": of_source, f"{key}.{layer}.target": of_target}
            separations[f"{key}.{layer}"] = separation(values[0], value)
    return points, separations
