"""What is done when the last step is done: predictor, evidence, metrics, result, page."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dial import files, methods
from dial.backbones import Backbone
from dial.console import Reporter
from dial.data.evaluation import EvaluationBatches
from dial.data.prepare import PreparedDomain
from dial.data.transforms import Preprocessing
from dial.deployment import model as models
from dial.deployment import runs
from dial.layers.conversion import Appended
from dial.methods.interface import Images
from dial.reporting import evidence, findings, gathering, report
from dial.selection import accuracy as estimation
from dial.selection import outputs
from dial.selection.observation import SAMPLE
from dial.training import engine
from dial.training.launch import Machine
from dial.training.settings import Settings

_SAMPLES = 16  # images of the target that are kept to try exported networks on


@dataclass(frozen=True)
class Trained:
    """What is there when the last step is done."""

    method: methods.Method
    backbone: Backbone
    trainee: methods.Trainee
    source: PreparedDomain
    target: PreparedDomain
    preprocessing: Preprocessing
    subjects: outputs.Subjects
    """The images that it is judged by."""


def conclude(
    trained: Trained,
    chosen: Settings,
    machine: Machine,
    progress: engine.Progress,
    reporter: Reporter,
    folder: Path,
) -> None:
    """From the trained network to the files: predictor, evidence, metrics, result, page."""
    method, trainee, source, target = (
        trained.method, trained.trainee, trained.source, trained.target,
    )  # fmt: skip
    assert source.labels is not None  # noqa: S101 - checked before training
    images = partial(EvaluationBatches, preprocessing=trained.preprocessing, batch_size=64)
    labelled = images(source.pixels, by_content=True)
    every = Images(
        labelled,
        torch.from_numpy(source.labels.indices[labelled.rows]),
        images(target.pixels, by_content=True),
    )
    append_after = tuple(trained.backbone.append_after) if _appends(trainee) else ()
    # A cell of a benchmark, without a page and without a held-out source, is judged by labels.
    judging = machine.report or chosen.holdout > 0
    unadapted = _unadapted(trained, reporter) if judging else None
    method.finish(trainee, every)
    network = method.predictor(trainee, every)
    sight = _look(trained, network, unadapted, reporter) if judging else None
    logits = models.predict(network, every.target) if sight is None else sight.target.logits
    logits = logits[np.argsort(target.pixels.order)]  # row by row, as the labels are
    warn_of_collapse(logits, reporter)
    if machine.report and sight is not None:
        _leave_evidence(trained, sight, machine, reporter, folder)
    judged: dict[str, Any] = {"estimated_accuracy": None}
    if sight is not None:
        judged |= _judge(trained, sight, chosen, reporter, folder)
    classes = source.labels.classes
    model = models.Model(
        network.cpu(), classes, trained.preprocessing, chosen.backbone, append_after
    )
    models.save(folder / "model.safetensors", model)
    runs.keep_samples(folder, target.pixels.read(target.pixels.order[:_SAMPLES]))
    lines = [json.dumps(record) for record in progress.history]
    files.write_text(folder / "metrics.jsonl", "\n".join(lines) + "\n")
    reference = method.reference_for(trained.backbone)
    result = {
        "method": chosen.method,
        "backbone": chosen.backbone,
        "reference": reference
        if reference is None or isinstance(reference, str)
        else repr(reference),
        "source": source.name,
        "target": target.name,
        "seed": chosen.seed,
        "epochs": len(progress.history),
        "steps": progress.step,
        "seconds": round(progress.seconds, 1),
        "target_accuracy": None
        if target.labels is None
        else accuracy(logits, target.labels.indices),
        "target_images": len(target.pixels),
        **judged,
    }
    files.write_json(folder / "result.json", result)
    reporter.finished(result, folder)
    if machine.report and (folder / evidence.NAME).exists():
        with _no_less_without(reporter, "report"):
            reporter.say(f"report: {report.write(folder)}")


def _unadapted(trained: Trained, reporter: Reporter) -> nn.Module | None:
    some = EvaluationBatches(
        trained.source.pixels,
        preprocessing=trained.preprocessing,
        by_content=True,
        most=SAMPLE,
    )
    network = None
    with _no_less_without(reporter, "network without adaptation"):
        network = trained.method.unadapted(trained.trainee, some)
    return network  # noqa: RET504 - None, where the guard has caught an error


def _look(
    trained: Trained, network: nn.Module, unadapted: nn.Module | None, reporter: Reporter
) -> outputs.Sight | None:
    sight = None
    with _no_less_without(reporter, "outputs to judge it by, and no report"):
        sight = trained.subjects.look(network, unadapted)
    return sight  # noqa: RET504 - None, where the guard has caught an error


def _leave_evidence(
    trained: Trained,
    sight: outputs.Sight,
    machine: Machine,
    reporter: Reporter,
    folder: Path,
) -> None:
    with _no_less_without(reporter, "evidence for a report"):
        found = gathering.gather(
            trained.method,
            sight,
            source=trained.source,
            target=trained.target,
            repeat={
                "data": None if machine.data is None else str(machine.data),
                "unlabelled": trained.target.labels is None,
            },
        )
        evidence.save(folder / evidence.NAME, found)


def _judge(
    trained: Trained, sight: outputs.Sight, chosen: Settings, reporter: Reporter, folder: Path
) -> dict[str, Any]:
    """What the result tells beside its accuracy, without the target's labels."""
    told: dict[str, Any] = {}
    with _no_less_without(reporter, "outputs to judge it by"):
        found = trained.subjects.keep(folder, sight)
        told |= estimation.judge(found, holdout=chosen.holdout)
    return told


@contextmanager
def _no_less_without(reporter: Reporter, what: str) -> Iterator[None]:
    """Let a run that is trained end well, whatever happens to what is only told about it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, the model is worth more
        reporter.warn(f"the run has no {what} ({type(error).__name__}: {error})")


def _appends(trainee: methods.Trainee) -> bool:
    return any(isinstance(module, Appended) for module in trainee.modules())


def warn_of_collapse(logits: Tensor, reporter: Reporter) -> None:
    """Tell if the target's predictions are of few of the classes."""
    collapsed = findings.collapse(logits.argmax(1).numpy(), logits.shape[1])
    if collapsed:
        reporter.warn(collapsed)


def accuracy(logits: Tensor, labels: npt.NDArray[np.int64]) -> float:
    """The share of right predictions."""
    return float(np.mean(logits.argmax(1).numpy() == labels))
