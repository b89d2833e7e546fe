"""Labels for images from a finished run: streamed file by file, and scored where labels exist."""

import csv
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from torch import Tensor

from dial import files
from dial.data.datasets import open_domain
from dial.data.domain import Domain, ImageFiles, Labels
from dial.data.evaluation import EvaluationBatches, stream_files
from dial.data.folders import shown
from dial.data.pixels import ArrayPixels, array_digests, resize_array
from dial.data.reading import bad_files_error, count_bad
from dial.deployment import model as models
from dial.deployment.runs import Run
from dial.errors import DialError
from dial.training.launch import find_device

_BATCH = 64
_BEST = 5


class Prediction(NamedTuple):
    """An image's name, its label, how sure the network is, and the five best in order."""

    path: str
    label: str
    confidence: float
    best: tuple[tuple[str, float], ...]


class Scores(NamedTuple):
    """How well a run does on labelled images; only the images that could be read count."""

    accuracy: float
    images: int
    classes: dict[str, tuple[int, int]]
    """For each class that occurs: how many of its images are right, and how many there are."""
    unreadable: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        classes = {
            name: {"right": right, "images": count} for name, (right, count) in self.classes.items()
        }
        return self._asdict() | {"classes": classes}


@dataclass
class Predictions:
    """Predictions in the order of the images, made as they are asked for; iterate once."""

    model: models.Model
    domains: Sequence[Domain]
    device: torch.device
    quiet: bool = True
    bad: dict[Path, str] = field(default_factory=dict)
    """Files that could not be read so far, and why."""

    def __iter__(self) -> Iterator[Prediction]:
        for names, logits in self.batches():
            yield from _named(names, logits, self.model.classes)

    def batches(self) -> Iterator[tuple[list[str], Tensor]]:
        """Names and logits `(n, K)`, batch by batch."""
        network = self.model.network.eval().to(self.device)
        for domain in self.domains:
            for names, images in self.images(domain):
                if names:
                    yield names, models.predict(network, [images])

    def images(self, domain: Domain) -> Iterator[tuple[list[str], Tensor]]:
        """Names and images `(n, C, size, size)` of a domain, batch by batch."""
        preprocessing = self.model.preprocessing
        if isinstance(domain.images, ImageFiles):
            paths = [*dict.fromkeys(domain.images.paths)]
            for batch in stream_files(
                paths,
                preprocessing=preprocessing,
                batch_size=_BATCH,
                doing=f"predicting {domain.name}",
                quiet=self.quiet,
            ):
                self.bad |= batch.bad
                yield [shown(path) for path in batch.paths], batch.images
            return
        size, channels = preprocessing.resize, preprocessing.channels
        array = resize_array(domain.images.pixels, resize=size, channels=channels)
        pixels = ArrayPixels(array, digests=array_digests(array))
        names = _names(domain)
        batches = EvaluationBatches(pixels, preprocessing=preprocessing, batch_size=_BATCH)
        for number, images in enumerate(batches):
            yield names[number * _BATCH :][: len(images)], images


def predict(
    run: Run,
    images: Iterable[str | os.PathLike[str]],
    *,
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    quiet: bool = True,
) -> Predictions:
    """Label images: files, folders, image lists, or known domains.

    Args:
        run: a finished run, as `dial.adapt` and `dial.runs.load` give it.
        images: what to label, in this order.
        data: the folder that holds the known data sets, or that lists are relative to.
        device: auto, cpu, cuda or mps.
        quiet: show no progress.

    Returns:
        An iterable of `Prediction`; its `bad` tells, once it is used up, what could not be read.

    Raises:
        DialError: something in `images` does not exist or holds no image.
    """
    domains = [open_domain(item, data=data, unlabelled=True) for item in images]
    return Predictions(run.model, domains, find_device(device), quiet)


def evaluate(
    run: Run,
    labelled: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    skip_bad: bool = False,
    quiet: bool = True,
) -> Scores:
    """Score a finished run on images that have labels; a part of its classes is enough.

    Raises:
        DialError: no labels, other classes than the run's, or files that cannot be read (but not
            if `skip_bad`).
    """
    domain = open_domain(labelled, data=data)
    if domain.labels is None:
        raise DialError(
            wanted=f"labelled images in {domain.name}: one folder of images for each class",
            got="; ".join(["images without classes", *domain.notes]),
            fix="sort them into class folders, or use `dial predict`, which needs no labels",
        )
    labels = domain.labels.onto(run.model.classes)
    predictions = Predictions(run.model, [domain], find_device(device), quiet)
    found = {
        name: best
        for names, logits in predictions.batches()
        for name, best in zip(names, logits.argmax(1).tolist(), strict=True)
    }
    if predictions.bad and not skip_bad:
        raise bad_files_error(predictions.bad, total=len(domain.images))
    return _score(domain, labels, found, unreadable=len(predictions.bad))


def _score(domain: Domain, labels: Labels, found: dict[str, int], *, unreadable: int) -> Scores:
    names = _names(domain)
    rows = [row for row, name in enumerate(names) if name in found]
    if not rows:
        raise DialError(
            wanted=f"an image that can be read in {domain.name}",
            got=f"{len(names)} files, none of which can",
            fix=f"run `dial check {domain.name} {domain.name}` to see what is wrong with them",
        )
    truth = labels.indices[rows]
    right = np.array([found[names[row]] for row in rows]) == truth
    classes = {
        labels.classes[index]: (int(right[truth == index].sum()), int((truth == index).sum()))
        for index in np.unique(truth)
    }
    return Scores(float(right.mean()), len(rows), classes, unreadable)


def _names(domain: Domain) -> list[str]:
    """How each image of a domain is called in predictions."""
    if isinstance(domain.images, ImageFiles):
        return [shown(path) for path in domain.images.paths]
    return [f"{domain.name}/{row}" for row in range(len(domain.images))]


def write_csv(predictions: Predictions, file: Path | None, *, top: bool = False) -> int:
    """Stream predictions as CSV into a file, or to standard output; how many there were.

    Rows are on disk as soon as their batch is done, in `FILE.partial`, which takes the file's name
    when it is whole; so what was computed is not lost when something fails halfway.

    Raises:
        DialError: the disk is full or closed to us, or no file could be read.
    """
    count = 0
    with _opened(file) as out:
        writer = csv.writer(out)
        best = range(2, min(_BEST, len(predictions.model.classes)) + 1) if top else ()
        header = ["path", "label", "confidence"]
        writer.writerow(header + [f"{name}_{n}" for n in best for name in header[1:]])
        for names, logits in predictions.batches():
            for found in _named(names, logits, predictions.model.classes):
                others = [cell for label, p in found.best[1:] for cell in (label, f"{p:.6f}")]
                row = [found.path, found.label, f"{found.confidence:.6f}"]
                writer.writerow(row + (others if top else []))
                count += 1
            out.flush()
        if not count:
            raise DialError(
                wanted="images that can be read",
                got=count_bad(predictions.bad),
                fix="point to .jpg, .png, .bmp, .webp, .tif or .gif files that open elsewhere",
            )
    return count


@contextmanager
def _opened(file: Path | None) -> Iterator[TextIO]:
    if file is None:
        yield sys.stdout
        return
    partial = file.with_name(f"{file.name}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", newline="", encoding="utf-8") as out:
            yield out
        partial.replace(file)
    except DialError:  # nothing could be predicted, so nothing would be lost
        partial.unlink(missing_ok=True)
        raise
    except OSError as error:
        rest = f"the rows so far are in {partial}" if partial.is_file() else ""
        raise files.unwritable(file, error, rest=rest) from error


def _named(names: list[str], logits: Tensor, classes: Sequence[str]) -> Iterator[Prediction]:
    values, places = logits.softmax(1).topk(min(_BEST, len(classes)), dim=1)
    for name, sure, best in zip(names, values.tolist(), places.tolist(), strict=True):
        ranked = tuple((classes[place], value) for place, value in zip(best, sure, strict=True))
        yield Prediction(name, *ranked[0], ranked)
