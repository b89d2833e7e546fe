"""A page to label target images by hand, from a finished run: draw, predict, write."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import numpy as np

from dial import files
from dial.data.domain import Images
from dial.data.evaluation import stream_images
from dial.data.hand_labels import COLUMNS, PEEKED, Purpose
from dial.deployment.prediction import find_device
from dial.deployment.runs import Run, load
from dial.deployment.target import open_target, rows_with_known_labels
from dial.errors import DialError, missing_extra
from dial.reporting.pictures import Picture, encode_first
from dial.selection.outputs import Observation, observe
from dial.selection.sampling import (
    LOOKED_AT,
    Rows,
    choose_for_training,
    kept_for_scoring,
    shuffle,
)

NAMES = {"score": "label.html", "training": "label-training.html"}
"""Of the pages in a run's folder."""

Location = str | os.PathLike[str]


@dataclass(frozen=True)
class Sample:
    """Images to label, in the order in which the page shows them."""

    purpose: Purpose
    seed: int
    population: int
    """The number of images that they were drawn from."""
    names: tuple[str, ...]
    pictures: tuple[Picture, ...]
    predicted: tuple[int, ...]
    """The class that the run predicts for each."""
    unreadable: int
    """Images that were drawn but could not be read; others took their places."""


def label(
    run: Run | Location,
    images: Location | None = None,
    *,
    out: Location | None = None,
    count: int = 50,
    seed: int = 0,
    purpose: str = "score",
    target: str | None = None,
    data: Location | None = None,
    device: str = "auto",
    quiet: bool = True,
) -> Path:
    """Write one self-contained page to label target images by hand.

    The page works offline and saves a table, `labels.csv`, for `dial.evaluate` or for
    `dial.adapt(labelled=...)`.

    Args:
        run: a finished run, or its folder.
        images: the target's images; by default where they were when the run was made.
        out: the page; by default `label.html` in the run's folder, or `label-training.html`.
        count: images to draw.
        seed: of the drawing; the same seed draws the same images.
        purpose: "score" draws by chance, from all images whose labels had no part in training.
            "training" takes those where labels help most, and never an image of the sample for
            scoring with the same seed.
        target: one of the run's targets, if it has several.
        data: the folder that holds the known data sets; by default the run's.
        device: auto, cpu, cuda or mps.
        quiet: show no progress.

    Returns the page's path.

    Raises:
        DialError: no such run, images that are not there any more, or too few of them.
    """
    if purpose not in NAMES:
        raise DialError(
            wanted=f"labels for one of {' and '.join(NAMES)}",
            got=repr(purpose),
            fix="use --for score to measure the accuracy",
        )
    if count < 1:
        raise DialError(wanted="one image or more to label", got=str(count), fix="use --count 50")
    if seed < 0:
        raise DialError(wanted="a seed of 0 or more", got=str(seed), fix="use --seed 0")
    finished = run if isinstance(run, Run) else load(run, target=target)
    domain = open_target(finished, images, data=data)
    draw = Drawing(finished, domain.images, seed, device, quiet)
    sample = draw.for_scoring(count) if purpose == "score" else draw.for_training(count)
    path = Path(out or finished.folder / NAMES[purpose])
    files.write_text(path, render(sample, finished.model.classes, run=finished.folder))
    return path


@dataclass(frozen=True)
class Drawing:
    """Draws images of a run's target."""

    run: Run
    images: Images
    seed: int
    device: str
    quiet: bool

    def for_scoring(self, count: int) -> Sample:
        """Returns images drawn by chance, without replacement."""
        order = self._order()
        pictures, bad = encode_first(self.images, order.tolist(), count)
        if not pictures:
            raise _too_few(len(order), len(bad))
        seen, rows = self._look([*pictures])
        return self._sample("score", seen, rows, pictures, len(order), len(bad))

    def for_training(self, count: int) -> Sample:
        """Returns the images where labels help most, of those that are not for scoring."""
        order = self._order()
        # Where files cannot be read, the sample for scoring may reach beyond what is kept for it.
        scored, _ = encode_first(self.images, order.tolist(), kept_for_scoring(0, count))
        rest = order[kept_for_scoring(len(order), count) :]
        pool = rest[~np.isin(rest, [*scored])][:LOOKED_AT]
        if not len(pool):
            raise DialError(
                wanted="target images for training beside those for scoring",
                got=f"{len(order)} images, which are all for scoring",
                fix="name more images as IMAGES, or use a smaller --count",
            )
        seen, rows = self._look(pool.tolist())
        chosen = choose_for_training(seen.logits, seen.features, count, seed=self.seed)
        part = Observation(seen.logits[chosen], seen.features[chosen])
        kept = [rows[each] for each in chosen]
        pictures, _ = encode_first(self.images, kept, count)
        return self._sample("training", part, kept, pictures, len(order), len(pool) - len(rows))

    def _order(self) -> Rows:
        """Returns the rows whose labels are not known to the run, in an order of chance."""
        known = rows_with_known_labels(self.run, self.images)
        order = shuffle(len(self.images), seed=self.seed)
        return order[~np.isin(order, [*known])]

    def _look(self, rows: list[int]) -> tuple[Observation, list[int]]:
        """Returns what the run's network makes of some images, and which of them can be read."""
        model = self.run.model
        some = self.images.take(rows)
        row_of = dict(zip(some.names, rows, strict=True))
        good: list[int] = []

        def batches() -> Iterator[Any]:
            title = "predicting the target"
            for batch in stream_images(
                some, preprocessing=model.preprocessing, title=title, quiet=self.quiet
            ):
                good.extend(row_of[name] for name in batch.names)
                if batch.names:
                    yield batch.images

        network = model.network.to(find_device(self.device))
        return observe(network, batches(), classifier=model.classifier, measured=0), good

    def _sample(
        self,
        purpose: Purpose,
        seen: Observation,
        rows: list[int],
        pictures: dict[int, Picture],
        population: int,
        unreadable: int,
    ) -> Sample:
        names = self.images.names
        return Sample(
            purpose=purpose,
            seed=self.seed,
            population=population,
            names=tuple(names[row] for row in rows),
            pictures=tuple(pictures[row] for row in rows),
            predicted=tuple(seen.logits.argmax(1).tolist()),
            unreadable=unreadable,
        )


def _too_few(images: int, bad: int) -> DialError:
    return DialError(
        wanted="target images to label",
        got=f"{images} whose labels the run does not know, of which {bad} cannot be read",
        fix="name a folder of images as IMAGES: dial label RUN IMAGES",
    )


def render(sample: Sample, classes: Sequence[str], *, run: Path) -> str:
    """Returns the page; `run` is the run's folder.

    What a user named is in it as JSON alone, in which no script can begin.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise missing_extra(error, "report") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template, style, script = (
        resources("dial.reporting").joinpath(name).read_text(encoding="utf-8")
        for name in ("label.html.jinja", "label.css", "label.js")
    )
    return environment.from_string(template).render(
        style=style,
        script=script,
        data=_safe_json(_content(sample, classes, run)),
        purpose=sample.purpose,
    )


def _content(sample: Sample, classes: Sequence[str], run: Path) -> dict[str, Any]:
    """Returns all that the page knows."""
    folder = run.resolve()
    identity = [str(folder), sample.purpose, sample.seed, sample.names]
    return {
        "key": hashlib.blake2b(json.dumps(identity).encode(), digest_size=12).hexdigest(),
        "run": folder.name,
        "purpose": sample.purpose,
        "seed": sample.seed,
        "population": sample.population,
        "unreadable": sample.unreadable,
        "classes": classes,
        "columns": COLUMNS,
        "peeked": PEEKED,
        "images": [
            {
                "path": name,
                "predicted": predicted,
                "source": picture.source,
                "width": picture.width,
                "height": picture.height,
                "small": picture.is_small,
            }
            for name, predicted, picture in zip(
                sample.names, sample.predicted, sample.pictures, strict=True
            )
        ],
    }


def _safe_json(value: Any) -> str:
    """Returns JSON in which nothing can end the element that holds it.

    >>> _safe_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
