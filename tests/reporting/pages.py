"""Made-up records of runs, for tests of the report."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dial.data.domain import ImageFiles, Labels
from dial.data.pixels import ArrayPixels, array_digests
from dial.data.prepare import PreparedDomain
from dial.reporting.record import Record
from dial.training import settings


def make_record(
    classes: tuple[str, ...] = ("mug", "pen"),
    *,
    images: int = 120,
    labelled: bool = True,
    before: bool = True,
    layers: int = 4,
    names: str = "image",
    seed: int = 0,
) -> Record:
    """Returns a record of random predictions, as large and as odd as asked for."""
    generator = np.random.default_rng(seed)

    predictors = ("before", "after") if before else ("after",)
    views = [
        f"{predictor}.{layer}" for predictor in predictors for layer in ("features", "outputs")
    ]
    file = io.BytesIO()
    Image.fromarray(generator.integers(0, 255, (8, 8), dtype=np.uint8)).save(file, "JPEG")
    rows = [str(row) for row in range(0, images, 2)]
    predicted = {key: generator.integers(0, len(classes), images) for key in predictors}
    confidence = {key: generator.random(images).astype(np.float32) for key in predictors}
    steps = generator.integers(1, max(2, len(classes)), images)
    has_others = len(classes) > 1
    shift = np.array([(0.1 * i, 0.2) for i in range(layers)]).reshape(-1, 2)
    return Record(
        classes=classes,
        fingerprint="the same",
        adapts=True,
        without="the same network with the source's statistics in its DA-layers" if before else "",
        source_counts=generator.integers(1, 50, len(classes)),
        labels=generator.integers(0, len(classes), images) if labelled else None,
        predicted=predicted,
        confidence=confidence,
        points={
            f"{view}.{domain}": generator.normal(size=(30, 2)).astype(np.float32)
            for view in views
            for domain in ("source", "target")
        },
        separation=dict.fromkeys(views, 0.25),
        layers=tuple(f"block{i}" for i in range(layers)),
        shift=dict.fromkeys(predictors, shift),
        sampled=(500, min(500, images)),
        gallery_names={row: f"{names} {row}" for row in rows},
        gallery_pictures={row: np.frombuffer(file.getvalue(), np.uint8) for row in rows},
        gallery_side=8,
        runner_up=(predicted["after"] + steps) % len(classes) if has_others else None,
        runner_up_confidence=confidence["after"] / 3 if has_others else None,
    )


def make_files(record: Record, *, epochs: int = 3) -> dict[str, Any]:
    """Returns `config`, `result`, `history` and `folder` of a run that could have left it."""
    predicted, labels = record.predicted["after"], record.labels
    accuracy = None if labels is None else float(np.mean(predicted == labels))
    history = [
        {"epoch": i + 1, "step": 10 * (i + 1), "lr": 0.01, "cross_entropy": 1 / (i + 1)}
        | ({} if accuracy is None else {"target_accuracy": accuracy})
        for i in range(epochs)
    ]
    config = {
        "dial": "0.1.0", "python": "3.11.7", "torch": "2.13.0",
        "source": "photos", "target": "drawings", "classes": list(record.classes),
        "settings": settings.preset("digits_cnn").stored(),
    }  # fmt: skip
    result = {
        "method": "dial", "backbone": "digits_cnn", "reference": "normal", "source": "photos",
        "target": "drawings", "seed": 0, "epochs": epochs, "steps": 10 * epochs, "seconds": 1.5,
        "target_accuracy": accuracy, "target_images": len(predicted),
    }  # fmt: skip
    return {"config": config, "result": result, "history": history, "folder": Path("runs/one")}


def number(count: int) -> ImageFiles:
    """Returns files that are named by their rows."""
    return ImageFiles(tuple(Path(f"there/mug/{i}.jpg") for i in range(count)))


def make_domain(images: ImageFiles, side: int = 8, labels: Labels | None = None) -> PreparedDomain:
    """Returns a domain of random pixels."""
    generator = np.random.default_rng(0)
    array = generator.integers(0, 255, (len(images), side, side, 3), dtype=np.uint8)
    return PreparedDomain("d", images, ArrayPixels(array, digests=array_digests(array)), labels)
