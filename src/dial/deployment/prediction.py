"""Labels for images from a finished run, batch by batch, and scores where images have labels."""

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
from dial.data.decode import bad_files_error, count_bad
from dial.data.domain import Domain, ImageFiles, Labels, abbreviate
from dial.data.evaluation import stream_images
from dial.deployment import model as models
from dial.deployment.runs import Run
from dial.errors import DialError
from dial.selection.intervals import accuracy_interval

_BATCH = 64
_BEST = 5


class Prediction(NamedTuple):
    """An image's name, its label, the label's probability, and the five best labels in order."""

    path: str
    label: str
    confidence: float
    best: tuple[tuple[str, float], ...]


class Scores(NamedTuple):
    """A run's accuracy on labelled images; only the images that could be read count."""

    accuracy: float
    images: int
    classes: dict[str, tuple[int, int]]
    """For each class that occurs: the number of right predictions, and of images."""
    unreadable: int
    interval: tuple[float, float]
    """The 95 % interval of the accuracy: of the population, or without one of images like these."""
    population: int | None = None
    """The number of images that these were drawn from by chance, if a page of `dial label` did."""
    peeked: int = 0
    """Images whose prediction was seen before they were labelled by hand."""
    unsure: int = 0
    """Images that a person could not tell the class of; they do not count."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields for JSON."""
        classes = {
            name: {"right": right, "images": count} for name, (right, count) in self.classes.items()
        }
        return self._asdict() | {"classes": classes}


@dataclass
class Predictions:
    """Predictions in the order of the images, computed while iterating; iterate once."""

    model: models.Model
    domains: Sequence[Domain]
    device: torch.device
    quiet: bool = True
    bad: dict[str, str] = field(default_factory=dict)
    """Files that could not be read so far, and why."""

    def __iter__(self) -> Iterator[Prediction]:
        for names, logits in self.batches():
            yield from _named(names, logits, self.model.classes)

    def batches(self) -> Iterator[tuple[list[str], Tensor]]:
        """Yields names and logits `(n, K)`, batch by batch."""
        network = self.model.network.eval().to(self.device)
        for domain in self.domains:
            for names, images in self.images(domain):
                if names:
                    yield names, models.predict(network, [images])

    def images(self, domain: Domain) -> Iterator[tuple[list[str], Tensor]]:
        """Yields names and images `(n, C, size, size)` of a domain, batch by batch."""
        for batch in stream_images(
            domain.images,
            preprocessing=self.model.preprocessing,
            batch_size=_BATCH,
            title=f"predicting {domain.name}",
            quiet=self.quiet,
        ):
            self.bad |= batch.bad
            yield batch.names, batch.images


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
        run: a finished run, as `dial.adapt` and `dial.runs.load` return it.
        images: what to label, in this order.
        data: the folder that holds the known data sets, or that lists are relative to.
        device: auto, cpu, cuda or mps.
        quiet: show no progress.

    Returns:
        An iterable of `Prediction`; its `bad` then lists the files that could not be read.

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
    """Score a finished run on images that have labels, of all its classes or some.

    `labelled` may also be the table that a page of `dial label` saved. Its images were drawn by
    chance, so the interval is that of the accuracy on all images of the target.

    Raises:
        DialError: no labels, other classes than the run's, files that cannot be read (unless
            `skip_bad`), a table of images that were chosen for training, or the very images
            that the run was trained with.
    """
    domain = open_domain(labelled, data=data)
    if domain.by_hand is not None:
        _require_sample(domain)
    _require_unseen(run, domain)
    if domain.labels is None:
        raise DialError(
            wanted=f"labelled images in {domain.name}: one folder of images for each class",
            got="; ".join(["images without classes", *domain.notes]),
            fix="sort them into class folders, or use `dial predict`, which needs no labels",
        )
    labels = domain.labels.onto(run.model.classes)
    predictions = Predictions(run.model, [domain], find_device(device), quiet)
    labels_by_name = {
        name: best
        for names, logits in predictions.batches()
        for name, best in zip(names, logits.argmax(1).tolist(), strict=True)
    }
    if predictions.bad and not skip_bad:
        raise bad_files_error(predictions.bad, total=len(domain.images))
    return _score(domain, labels, labels_by_name, unreadable=len(predictions.bad))


def describe(scores: Scores) -> str:
    """Returns what the command prints below the classes."""
    low, high = scores.interval
    of = "images like these"
    if scores.population is not None:
        of = f"the {scores.population} images that these were drawn from"
    lines = [
        f"accuracy {scores.accuracy:.1%} on {scores.images} images",
        f"95% interval {low:.1%} to {high:.1%}, for {of}",
    ]
    if scores.peeked:
        lines.append(f"{scores.peeked} were labelled with their prediction in sight")
    if scores.unsure:
        lines.append(f"{scores.unsure} more could not be told and do not count")
    return "\n".join(lines)


def find_device(name: str) -> torch.device:
    """Returns the device for one network, by the name that `--device` takes.

    Raises:
        DialError: this machine does not have it.
    """
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise DialError(
            wanted=f"a device '{name}'",
            got=str(error).splitlines()[0],
            fix="use --device cpu, cuda, mps or auto",
        ) from error
    return device


def _require_unseen(run: Run, domain: Domain) -> None:
    """Refuse the labelled images that the run was trained with."""
    from dial.training.run_folder import read_config  # prediction does without

    path = run.folder / "config.json"
    given = read_config(path).get("labelled") if path.exists() else None
    if given and given[1] == domain.images.fingerprint:
        raise DialError(
            wanted="labelled images that the run was not trained with",
            got=f"{domain.name}, which it was given with --labelled",
            fix="label other images, drawn by chance: dial label RUN",
        )


def _require_sample(domain: Domain) -> None:
    """Refuse a table of hand labels that says nothing about the accuracy, or whose images left."""
    if domain.by_hand is not None and domain.by_hand.purpose == "training":
        raise DialError(
            wanted=f"images that were drawn by chance, to score with, in {domain.name}",
            got="images that were chosen for training, which are harder than others",
            fix="label a sample of `dial label RUN`, without --for training; this table is for "
            "`dial adapt --labelled`",
        )
    paths = domain.images.paths if isinstance(domain.images, ImageFiles) else ()
    absent = [path for path in paths if not path.exists()]
    if absent:
        raise DialError(
            wanted=f"the {len(paths)} images that {domain.name} has labels of",
            got=f"{len(absent)} that are not there: {abbreviate(absent, most=3)}",
            fix="bring them back, or correct the column path; paths that are not absolute may be "
            "relative to --data DIR",
        )


def _score(
    domain: Domain, labels: Labels, labels_by_name: dict[str, int], *, unreadable: int
) -> Scores:
    names = domain.images.names
    rows = [row for row, name in enumerate(names) if name in labels_by_name]
    if not rows:
        raise DialError(
            wanted=f"an image that can be read in {domain.name}",
            got=f"{len(names)} files, none of which can",
            fix=f"run `dial check {domain.name} {domain.name}` to see what is wrong with them",
        )
    truth = labels.indices[rows]
    right = np.array([labels_by_name[names[row]] for row in rows]) == truth
    classes = {
        labels.classes[index]: (int(right[truth == index].sum()), int((truth == index).sum()))
        for index in np.unique(truth)
    }
    by_hand, population, peeked, unsure = domain.by_hand, None, 0, 0
    if by_hand is not None:
        population, peeked, unsure = by_hand.population, by_hand.peeked, by_hand.unsure
    interval = accuracy_interval(int(right.sum()), len(rows), population)
    return Scores(
        float(right.mean()), len(rows), classes, unreadable, interval, population, peeked, unsure
    )


def write_csv(predictions: Predictions, file: Path | None, *, top: bool = False) -> int:
    """Write predictions as CSV to a file or to standard output, batch by batch.

    Each batch goes to `FILE.partial`, which is renamed when it is complete; so no row is lost if
    something fails halfway.

    Returns:
        The number of images.

    Raises:
        DialError: the file cannot be written, or no image could be read.
    """
    count = 0
    with _opened(file) as out:
        writer = csv.writer(out)
        best = range(2, min(_BEST, len(predictions.model.classes)) + 1) if top else ()
        header = ["path", "label", "confidence"]
        writer.writerow(header + [f"{name}_{n}" for n in best for name in header[1:]])
        for names, logits in predictions.batches():
            for image in _named(names, logits, predictions.model.classes):
                others = [cell for label, p in image.best[1:] for cell in (label, f"{p:.6f}")]
                row = [image.path, image.label, f"{image.confidence:.6f}"]
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
    except DialError:  # nothing was predicted, so nothing is lost
        partial.unlink(missing_ok=True)
        raise
    except OSError as error:
        rest = f"the rows so far are in {partial}" if partial.is_file() else ""
        raise files.unwritable(file, error, rest=rest) from error


def _named(names: list[str], logits: Tensor, classes: Sequence[str]) -> Iterator[Prediction]:
    values, places = logits.softmax(1).topk(min(_BEST, len(classes)), dim=1)
    for name, confidences, best in zip(names, values.tolist(), places.tolist(), strict=True):
        ranked = tuple((classes[k], value) for k, value in zip(best, confidences, strict=True))
        yield Prediction(name, *ranked[0], ranked)
