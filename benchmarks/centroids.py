"""Apply `--centroids` to a copy of a finished run of DIAL, without training it again.

    python -m benchmarks.centroids RUN COPY --data DATA

copies a run that was trained with `--no-centroids` and does to the copy what `--centroids` would
have done after the last step: it changes the model, the accuracy, the setting, and the outputs
that validators score.
"""

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from dial import backbones, files
from dial.data.datasets import open_domain
from dial.data.evaluation import EvaluationBatches
from dial.data.prepare import prepare
from dial.deployment import model as models
from dial.deployment import runs
from dial.methods import set_centroid_classifier
from dial.selection import outputs
from dial.training import run_folder


def apply_centroids(
    folder: Path, *, data: str | None, cache_dir: str | None
) -> tuple[float, float]:
    """Change a run in place; returns its accuracy before and after."""
    run, config = runs.load(folder), run_folder.read_config(folder / "config.json")
    model = run.model
    model.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    domain = open_domain(config["target"], data=data)
    preprocessing = model.preprocessing
    (target,) = prepare(
        (domain,),
        resize=preprocessing.resize,
        channels=preprocessing.channels,
        cache_dir=cache_dir,
    )
    assert target.labels is not None  # noqa: S101 - Office-31 has them
    images = EvaluationBatches(
        target.pixels, preprocessing=preprocessing, batch_size=64, by_content=True
    )
    backbone = backbones.create(model.backbone, num_classes=len(model.classes), weights="none")
    set_centroid_classifier(model.network, images, classifier=backbone.classifier)
    logits = models.predict(model.network, images).numpy()
    right = logits.argmax(1) == target.labels.indices[images.rows]
    if (folder / outputs.NAME).exists():
        found = outputs.load(folder)
        seen = replace(found.target, logits=logits[: len(found.target.logits)])
        outputs.save(folder, replace(found, target=seen), classes=model.classes)
    models.save(folder / "model.safetensors", model)
    config["settings"]["options"]["centroids"] = True
    files.write_json(folder / "config.json", config)
    accuracy = float(np.mean(right))
    files.write_json(folder / "result.json", run.result | {"target_accuracy": accuracy})
    return run.result["target_accuracy"], accuracy


def main() -> None:
    """Copy the run, change the copy, and print both accuracies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("copy", type=Path)
    parser.add_argument("--data", help="folder that holds office31")
    parser.add_argument("--cache-dir", help="where decoded images are kept")
    arguments = parser.parse_args()
    shutil.copytree(arguments.run, arguments.copy)
    places = {"data": arguments.data, "cache_dir": arguments.cache_dir}
    before, after = apply_centroids(arguments.copy, **places)
    print(f"{arguments.copy}: {100 * before:.1f} % becomes {100 * after:.1f} %")


if __name__ == "__main__":
    main()
