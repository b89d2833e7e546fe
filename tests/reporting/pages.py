"""Made-up evidence and records, for tests of what is told about a run."""

import io
from typing import Any

import numpy as np
from PIL import Image

from dial.reporting.evidence import Cloud, Evidence, Gallery, View
from dial.reporting.shift import Distance
from dial.training import settings


def make_evidence(
    classes: tuple[str, ...] = ("mug", "pen"),
    *,
    images: int = 120,
    labelled: bool = True,
    before: bool = True,
    layers: int = 4,
    names: str = "image",
    seed: int = 0,
) -> Evidence:
    """Evidence of random predictions, as large and as odd as asked for."""
    generator = np.random.default_rng(seed)

    def cloud() -> Cloud:
        points = generator.normal(size=(2, 30, 2)).astype(np.float32)
        return Cloud(points[0], points[1], 0.25)

    def view() -> View:
        predicted = generator.integers(0, len(classes), images)
        confidence = generator.random(images).astype(np.float32)
        return View(predicted, confidence, cloud(), cloud())

    file = io.BytesIO()
    Image.fromarray(generator.integers(0, 255, (8, 8), dtype=np.uint8)).save(file, "JPEG")
    rows = np.arange(0, images, 2)
    shift = tuple(Distance(0.1 * i, 0.2) for i in range(layers))
    return Evidence(
        classes=classes,
        fingerprint="the same",
        adapts=True,
        without="the same network with the source's statistics in its DA-layers" if before else "",
        source_counts=generator.integers(1, 50, len(classes)),
        labels=generator.integers(0, len(classes), images) if labelled else None,
        before=view() if before else None,
        after=view(),
        layers=tuple(f"block{i}" for i in range(layers)),
        shift_before=shift if before else None,
        shift_after=shift,
        sampled=(500, min(500, images)),
        gallery=Gallery(
            rows, tuple(f"{names} {row}" for row in rows), (file.getvalue(),) * len(rows), 8
        ),
        repeat={"data": None, "unlabelled": not labelled},
    )


def make_records(found: Evidence, *, epochs: int = 3) -> dict[str, Any]:
    """`config`, `result` and `history` of a run that could have left the evidence."""
    accuracy = (
        None if found.labels is None else float(np.mean(found.after.predicted == found.labels))
    )
    history = [
        {"epoch": i + 1, "step": 10 * (i + 1), "lr": 0.01, "cross_entropy": 1 / (i + 1)}
        | ({} if accuracy is None else {"target_accuracy": accuracy})
        for i in range(epochs)
    ]
    config = {
        "dial": "0.1.0", "python": "3.11.7", "torch": "2.13.0",
        "source": "photos", "target": "drawings", "classes": list(found.classes),
        "settings": settings.preset("digits_cnn").to_dict() | {"milestones": [0.9]},
    }  # fmt: skip
    result = {
        "method": "dial", "backbone": "digits_cnn", "reference": "normal", "source": "photos",
        "target": "drawings", "seed": 0, "epochs": epochs, "steps": 10 * epochs, "seconds": 1.5,
        "target_accuracy": accuracy, "target_images": len(found.after.predicted),
    }  # fmt: skip
    return {"config": config, "result": result, "history": history}
