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
from dial.console import Reporter
from dial.data.cache_locks import alone
from dial.data.datasets import open_domain
from dial.data.decode import bad_files_error, count_bad
from dial.data.domain import Domain, ImageFiles, Labels, abbreviate
from dial.data.evaluation import stream_images
from dial.deployment import model as models
from dial.deployment.runs import Run
from dial.deployment.runtime import Runtime, export_for_many, one_thread, runtime_for
from dial.errors import DialError
from dial.selection.intervals import accuracy_interval

BATCH = 64
"""Images that go through the network together."""
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
    folder: Path | None = None
    """The run's folder, which keeps an exported network."""
    runtime: Runtime | None = None
    """What computes the logits; by default what is faster for so many images."""
    bad: dict[str, str] = field(default_factory=dict)
    """Files that could not be read so far, and why."""

    def __iter__(self) -> Iterator[Prediction]:
        for names, logits in self.batches():
            yield from _named(names, logits, self.model.classes)

    def batches(self) -> Iterator[tuple[list[str], Tensor]]:
        """Yields names and logits `(n, K)`, batch by batch."""
        runtime = self.runtime or runtime_for(self.model, self.device, self.export())
        for domain in self.domains:
            yield from runtime.run(batch for batch in self.images(domain) if batch[0])

    def export(self) -> bytes | None:
        """Returns the network for ONNX Runtime, if that is faster for so many images."""
        if self.device.type != "cpu":
            return None
        count = sum(len(domain.images) for domain in self.domains)
        say = Reporter(quiet=self.quiet, title="").say
        return export_for_many(self.model, images=count, folder=self.folder, say=say)

    def images(self, domain: Domain) -> Iterator[tuple[list[str], Tensor]]:
        """Yields names and images `(n, C, size, size)` of a domain, batch by batch."""
        for batch in stream_images(
            domain.images,
            preprocessing=self.model.preprocessing,
            batch_size=BATCH,
            title=f"predicting {domain.name}",
            quiet=self.quiet,
        ):
            self.bad |= batch.bad
            yield batch.names, batch.images

    def write(self, file: str | os.PathLike[str] | None, *, top: bool = False) -> int:
        """Write a CSV file, or to standard output; `top` adds the others of the five best labels.

        Returns:
            The number of images.

        Raises:
            DialError: the file cannot be written, or no image could be read.
        """
        path = None if file is None else Path(file)
        if path is not None and path.suffix == ".parquet":
            fix = "name a .csv, or add --ray local, which writes Parquet too"
            raise DialError(wanted="a CSV file", got=str(path), fix=fix)
        return write_csv(self, path, top=top)


def predict(
    run: Run,
    images: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    data: str | os.PathLike[str] | None = None,
    device: str = "auto",
    quiet: bool = True,
    ray: str | None = None,
) -> Predictions:
    """Label images: files, folders, image lists, or known domains.

    Args:
        run: a finished run, as `dial.adapt` and `dial.runs.load` return it.
        images: what to label; of several in this order.
        data: the folder that holds the known data sets, or that lists are relative to.
        device: auto, cpu, cuda or mps.
        quiet: show no progress.
        ray: the Ray cluster that labels them: `auto`, `local` or `HOST:PORT`.

    Returns:
        An iterable of `Prediction`; its `bad` then lists the files that could not be read.

    Raises:
        DialError: something in `images` does not exist or holds no image.
    """
    items = [images] if isinstance(images, str | os.PathLike) else images
    domains = [open_domain(item, data=data, unlabelled=True) for item in items]
    if ray is not None:
        from dial.deployment.parts import ClusterPredictions

        cpu = torch.device("cpu")  # the workers find their own
        return ClusterPredictions(
            run.model, domains, cpu, quiet, run.folder, address=ray, device_name=device
        )
    return Predictions(run.model, domains, find_device(device), quiet, run.folder)


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
    predictions = Predictions(run.model, [domain], find_device(device), quiet, run.folder)
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
    absent = [path for path in paths if not os.path.exists(path)]
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
        writer.writerow(columns(predictions.model, top=top))
        for names, logits in predictions.batches():
            for image in _named(names, logits, predictions.model.classes):
                writer.writerow(csv_row(image, top=top))
                count += 1
            out.flush()
        if not count:
            raise none_readable(predictions.bad)
    return count


def columns(model: models.Model, *, top: bool) -> list[str]:
    """Returns the names of the columns; `top` adds those of the other four of the five best."""
    best = range(2, min(_BEST, len(model.classes)) + 1) if top else ()
    header = ["path", "label", "confidence"]
    return header + [f"{name}_{n}" for n in best for name in header[1:]]


def row(image: Prediction, *, top: bool) -> list[str | float]:
    """Returns the values of those columns."""
    best = image.best if top else image.best[:1]
    return [image.path, *(value for pair in best for value in pair)]


def csv_row(image: Prediction, *, top: bool) -> list[str]:
    """Returns the values of those columns as a CSV has them."""
    cells = row(image, top=top)
    return [f"{cell:.6f}" if isinstance(cell, float) else cell for cell in cells]


def none_readable(bad: dict[str, str]) -> DialError:
    """Error: none of the images could be read."""
    return DialError(
        wanted="images that can be read",
        got=count_bad(bad),
        fix="point to .jpg, .png, .bmp, .webp, .tif or .gif files that open elsewhere",
    )


@contextmanager
def _opened(file: Path | None) -> Iterator[TextIO]:
    if file is None:
        if sys.stdout is None:
            fix = "add --out FILE.csv"
            raise DialError(wanted="a standard output", got="a closed one", fix=fix)
        yield sys.stdout
        return
    partial = file.with_name(f"{file.name}.partial")
    try:
        if files.is_device(file):
            with file.open("w", newline="", encoding="utf-8") as out:
                yield out
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("a", newline="", encoding="utf-8") as out, alone(partial) as is_ours:
            if not (is_ours and _is_at(partial, out)):
                raise files.taken(file)
            out.truncate(0)
            try:
                yield out
            except DialError:  # nothing was predicted, so nothing is lost
                partial.unlink(missing_ok=True)
                raise
            out.flush()
            partial.replace(file)
    except OSError as error:
        rest = f"the rows so far are in {partial}" if partial.is_file() else ""
        raise files.unwritable(file, error, rest=rest) from error


def _is_at(path: Path, out: TextIO) -> bool:
    """Whether an open file is still at its path; another process may have renamed it."""
    return path.exists() and os.path.samestat(os.fstat(out.fileno()), path.stat())


def _named(names: list[str], logits: Tensor, classes: Sequence[str]) -> Iterator[Prediction]:
    with one_thread():
        values, places = logits.softmax(1).topk(min(_BEST, len(classes)), dim=1)
    for name, confidences, best in zip(names, values.tolist(), places.tolist(), strict=True):
        ranked = tuple((classes[k], value) for k, value in zip(best, confidences, strict=True))
        yield Prediction(name, *ranked[0], ranked)
