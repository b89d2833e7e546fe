"""From two domains to a finished predictor: what `dial adapt` does, from Python."""

import os
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dial import backbones, methods
from dial.backbones import Backbone
from dial.conclusion import Trained, accuracy, conclude, warn_of_collapse
from dial.console import Reporter
from dial.data.batches import Batches
from dial.data.datasets import open_pair
from dial.data.domain import Domain, ImageArray, require_labels
from dial.data.evaluation import EvaluationBatches
from dial.data.holdout import hold_out, sample
from dial.data.prepare import PreparedDomain, prepare, require_every_class
from dial.data.transforms import Preprocessing
from dial.deployment import model as models
from dial.deployment import runs
from dial.deployment.runs import Run
from dial.errors import DialError
from dial.methods._probe import start
from dial.reporting import evidence, report
from dial.reporting.findings import LEAST
from dial.selection import outputs, tuning
from dial.selection.trials import Attempt
from dial.training import engine, run_folder, settings
from dial.training.launch import Machine, launch
from dial.training.settings import Settings

_SETTLED = 100  # steps after which running statistics are good enough to judge an epoch by
_PROBED = 5000  # images of the source that the first classifier is fitted to
_WATCHED = 500  # images of the target that an epoch is judged by; the end is judged by all


def adapt(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    preset: str | None = None,
    resume: bool = False,
    unlabelled: bool = False,
    tune: str | None = None,
    validator: str | None = None,
    **options: Any,
) -> Run:
    """Train a classifier on the source that works on the target.

    Args:
        source: class folders, an image list, or a known domain like `office31:amazon`.
        target: any folder of images, an image list, or a known domain; its labels, if it has
            any, are used for scoring alone.
        out: the run's folder.
        preset: where the settings come from; by default it follows the backbone and the data.
        resume: go on with the run in `out`, or return it if it is finished.
        unlabelled: take the target's folders for folders, not for classes.
        tune: a numeric field of the method to choose without the target's labels, from a grid;
            `entropy="auto"` is `tune="entropy"`.
        validator: what to choose it by.
        options: fields of `Settings`, of the method (`reference`, `entropy`, ...), and of the
            machine (`device`, `devices`, `precision`, `data`, `cache_dir`, `skip_bad`, ...).

    Raises:
        DialError: whatever is wrong with the images, the settings or the run's folder.
    """
    folder = Path(out)
    machine_options = {f.name: options.pop(f.name) for f in fields(Machine) if f.name in options}
    machine = Machine(**{k: v for k, v in machine_options.items() if v is not None})
    domains = open_pair(source, target, data=machine.data, unlabelled=unlabelled)
    chosen = _choose(domains[0], preset, options)
    train = partial(_train, domains=domains, machine=machine)
    search = tuning.plan(chosen, tune=tune, validator=validator)
    if search is None:
        return train(chosen, folder, resume=resume)
    alone, quiet = machine.devices == 1, machine.quiet
    tuning.tune(search, folder, domains, train=train, resume=resume, prune=alone, quiet=quiet)
    if machine.report and (folder / evidence.NAME).exists():
        report.write(folder)
    return runs.load(folder)


def _train(
    chosen: Settings,
    folder: Path,
    *,
    domains: tuple[Domain, Domain],
    machine: Machine,
    resume: bool,
    attempt: Attempt | None = None,
) -> Run:
    """One run from its settings."""
    if run_folder.begin(folder, chosen, domains, resume=resume):
        return runs.load(folder)
    launch(_run, domains, chosen, folder, machine, attempt, resume=resume, machine=machine)
    return runs.load(folder)


def _choose(source: Domain, preset: str | None, options: dict[str, Any]) -> Settings:
    """The settings: a preset's, with the fields and the method's settings that were given."""
    default = "digits_cnn" if isinstance(source.images, ImageArray) else settings.PHOTOGRAPHS
    name = preset or settings.preset_for(options.get("backbone"), default=default)
    chosen = settings.choose(name, options)
    methods.create(chosen.method, chosen.options)  # to hear of mistakes before images are read
    return chosen


def _run(
    fabric: Any,
    domains: tuple[Domain, Domain],
    chosen: Settings,
    folder: Path,
    machine: Machine,
    attempt: Attempt | None,
    *,
    resume: bool,
) -> None:
    """One process of a run, from the images to the files."""
    torch.manual_seed(chosen.seed)
    classes = require_labels(domains[0]).classes
    backbone = backbones.create(
        chosen.backbone,
        num_classes=len(classes),
        weights=chosen.weights,
        align_logits=chosen.align_logits,
        frozen=chosen.frozen,
    )
    preprocessing = preprocessing_for(backbone, chosen.image_size)
    quiet = machine.quiet or not fabric.is_global_zero
    ready = partial(
        prepare,
        domains,
        resize=preprocessing.resize,
        channels=preprocessing.channels,
        skip_bad=machine.skip_bad,
        cache_dir=machine.cache_dir,
        use_cache=machine.use_cache,
        quiet=quiet,
    )
    with fabric.rank_zero_first():  # the others find the cache built
        source, target = ready()
    require_every_class(source)
    source, held_out = hold_out(source, chosen.holdout, seed=chosen.seed)
    method = methods.create(chosen.method, chosen.options)
    batches = _batches(source, target, method, chosen, preprocessing, fabric, machine)
    watched = EvaluationBatches(
        target.pixels,
        preprocessing=preprocessing,
        by_content=True,
        most=max(_WATCHED, LEAST * len(classes)),
    )
    title = attempt.title if attempt else f"{chosen.method}: {source.name} -> {target.name}"
    reporter = Reporter(quiet=quiet, title=title, scores=attempt is None)
    subjects = outputs.Subjects(source, held_out, target, preprocessing, backbone.classifier)
    trainee = method.prepare(backbone)
    trainee.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    with reporter:
        if method.start == "probe":
            _start_from_probe(trainee, source, preprocessing, reporter)
        progress = engine.fit(
            trainee,
            method,
            batches,
            settings=chosen,
            fabric=fabric,
            checkpoint=folder / "last.ckpt",
            resume=resume,
            on_epoch=partial(
                _end_epoch, watched=watched, subjects=subjects, reporter=reporter, attempt=attempt
            ),
            on_step=reporter.step,
        )
    if fabric.is_global_zero:
        trained = Trained(method, backbone, trainee, source, target, preprocessing, subjects)
        conclude(trained, chosen, machine, progress, reporter, folder)


def _start_from_probe(
    trainee: methods.Trainee,
    source: PreparedDomain,
    preprocessing: Preprocessing,
    reporter: Reporter,
) -> None:
    some = sample(source, _PROBED)
    assert some.labels is not None  # noqa: S101 - checked before training
    reporter.say(f"logistic regression on {len(some.pixels)} source images, to begin with")
    images = EvaluationBatches(some.pixels, preprocessing=preprocessing, by_content=True)
    start(trainee, images, torch.from_numpy(some.labels.indices[images.rows]))


def _end_epoch(
    trainee: methods.Trainee,
    record: dict[str, Any],
    *,
    watched: EvaluationBatches,
    subjects: outputs.Subjects,
    reporter: Reporter,
    attempt: Attempt | None,
) -> None:
    """Score and tell an epoch; a trial that is far behind others is stopped here."""
    logits = models.predict(trainee.network, watched)
    record["target_classes_predicted"] = len(logits.argmax(1).unique())
    if subjects.target.labels is not None:
        labels = subjects.target.labels.indices[watched.rows]
        record["target_accuracy"] = accuracy(logits, labels)
    if record["step"] >= _SETTLED:
        warn_of_collapse(logits, reporter)
    reporter.epoch(record)
    if attempt is not None and attempt.judge is not None:
        attempt.judge(record["epoch"], partial(subjects.midway, trainee.network))


def preprocessing_for(backbone: Backbone, image_size: int | None) -> Preprocessing:
    """How images are made for a network; of its own size for None."""
    size = image_size or backbone.image_size
    grey = len(backbone.mean) == 1
    return Preprocessing(
        size=size,
        resize=round(size / backbone.crop_ratio),
        channels=len(backbone.mean),
        mean=backbone.mean,
        std=backbone.std,
        flip=not grey,
    )


def _batches(
    source: PreparedDomain,
    target: PreparedDomain,
    method: methods.Method,
    chosen: Settings,
    preprocessing: Preprocessing,
    fabric: Any,
    machine: Machine,
) -> Batches:
    assert source.labels is not None  # noqa: S101 - checked before training
    if len(target.pixels) == 1:
        raise DialError(
            wanted="a target of 2 or more images",
            got="1",
            fix="add images; a domain is adapted to by the statistics of many",
        )
    batches = Batches(
        source.pixels,
        source.labels,
        target.pixels if method.needs_target else None,
        preprocessing=preprocessing,
        batch_size=chosen.batch_size,
        seed=chosen.seed,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
        workers=machine.workers,
    )
    sizes = batches.batch_size
    if sizes.source % fabric.world_size or sizes.target % fabric.world_size:
        raise DialError(
            wanted=f"sub-batches that {fabric.world_size} processes share evenly",
            got=f"{sizes.source}+{sizes.target}",
            fix="choose a --batch-size of multiples of the number of processes",
        )
    return batches
