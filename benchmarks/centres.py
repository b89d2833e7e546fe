"""Finished runs of DIAL with the target's class centres as their classifier, without training anew.

    python -m benchmarks.centres RUN COPY --data DATA

copies a run that was made with `--no-centroids` and does to the copy what `--centroids` would have
done after its last step, which is all that the two differ in: the model, the accuracy, the setting,
and the outputs that validators judge by.
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
from dial.methods._centroids import refit
from dial.selection import outputs
from dial.training import run_folder


def put_centres(folder: Path, *, data: str | None, cache_dir: str | None) -> tuple[float, float]:
    """Change a run in place; its accuracy before and after."""
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
    refit(model.network, images, classifier=backbone.classifier)
    logits = models.predict(model.network, images).numpy()
    right = logits.argmax(1) == target.labels.indices[images.rows]
    if (folder / outputs.NAME).exists():
        found = outputs.load(folder)
        seen = replace(found.target, logits=logits[: len(found.target.logits)])
        about = {"classes": model.classes, "images": "in the order of their content"}
        outputs.save(folder / outputs.NAME, replace(found, target=seen), about=about)
    models.save(folder / "model.safetensors", model)
    config["settings"]["options"]["centroids"] = True
    files.write_json(folder / "config.json", config)
    accuracy = float(np.mean(right))
    files.write_json(folder / "result.json", run.result | {"target_accuracy": accuracy})
    return run.result["target_accuracy"], accuracy


def main() -> None:
    """Copy, change, tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("copy", type=Path)
    parser.add_argument("--data", help="folder that holds office31")
    parser.add_argument("--cache-dir", help="where decoded images are kept")
    arguments = parser.parse_args()
    shutil.copytree(arguments.run, arguments.copy)
    places = {"data": arguments.data, "cache_dir": arguments.cache_dir}
    before, after = put_centres(arguments.copy, **places)
    print(f"{arguments.copy}: {100 * before:.1f} % becomes {100 * after:.1f} %")


if __name__ == "__main__":
    main()
