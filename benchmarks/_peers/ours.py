"""Our own methods, from the same parts as `dial adapt` and with its defaults."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from benchmarks._peers.task import Task
from dial import methods
from dial.methods import Images
from dial.selection.choice import choose
from dial.training import engine
from dial.training.clock import Clock
from dial.training.settings import change


def predict(name: str, task: Task) -> Any:
    """Returns the classes that the finished predictor gives the target, `(N,)`."""
    return task.predict(train(name, task))


def train(name: str, task: Task) -> nn.Module:
    """Returns the target's predictor after the last step."""
    settings = change(task.settings, method=name)
    method = methods.create(name, settings.options)
    trainee = method.prepare(task.backbone)
    trainee.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    source = task.images(task.source.pixels, by_content=True)
    labels = torch.from_numpy(task.source.labels.indices[source.rows])
    images = Images(source, labels, task.images(task.target, by_content=True))
    first = method.begin(trainee, images)
    with tempfile.TemporaryDirectory() as folder:
        engine.fit(
            trainee,
            method,
            task.batches(with_target=method.needs_target),
            settings=settings,
            fabric=Fabric(accelerator="cpu", devices=1),
            checkpoint=Path(folder) / "last.ckpt",
            clock=Clock(),
            on_step=task.tick,
            on_refresh=lambda trainee: method.refresh(trainee, images, first),
        )
    method.finish(trainee, images)
    later = method.candidates(trainee, images, first.get(images.domain))
    candidates = [*first.values(), *later]
    if not candidates:
        return method.predictor(trainee, images)
    return choose(candidates, labels)[0].network
