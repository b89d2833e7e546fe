"""From two domains to a finished predictor: prepare, train, finish, judge, write."""

import copy
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dial import backbones, files, methods
from dial.backbones import Backbone
from dial.console import Reporter
from dial.data.batches import Batches
from dial.data.datasets import open_pair
from dial.data.domain import Domain, LabelledDomain
from dial.data.holdout import hold_out, sample
from dial.data.prepare import prepare_pair
from dial.data.transforms import Preprocessing
from dial.deployment import model as models
from dial.deployment import runs
from dial.deployment.runs import Run
from dial.errors import DialError
from dial.methods import Candidate, Images, Method, Trainee
from dial.reporting import record
from dial.reporting.report import report
from dial.selection import accuracy, choice, outputs, tuning
from dial.selection.outputs import SAMPLE, Observer, Outputs
from dial.selection.tuning import Attempt
from dial.selection.validators import Validator
from dial.training import budget as budgets
from dial.training import engine, run_folder
from dial.training.budget import FITTED, WATCHED
from dial.training.engine import Progress
from dial.training.launch import Execution, launch
from dial.training.settings import PHOTOGRAPHS, Settings, choose, name_of, preset_for

_SETTLED = 100  # steps after which running statistics are good enough to judge an epoch by
_SAMPLES = 16  # target images that are kept to try exported networks on


def adapt(
    source: str | os.PathLike[str] | Domain | None = None,
    target: str | os.PathLike[str] | Domain | None = None,
    *,
    out: str | os.PathLike[str],
    resume: bool = False,
    preset: str | None = None,
    config: str | os.PathLike[str] | None = None,
    tune: str | None = None,
    validator: str | Validator | None = None,
    data: str | os.PathLike[str] | None = None,
    unlabelled: bool | None = None,
    minutes: float | None = None,
    **options: Any,
) -> Run:
    """Train a classifier on the source that works on the target.

    Args:
        source: class folders, an image list, a known domain like `office31:amazon`, or a `Domain`.
        target: any folder of images, an image list, a known domain, or a `Domain`. Its labels, if
            it has any, are used for scoring alone.
        out: the run's folder.
        resume: resume the run in `out`, or return it if it is finished.
        preset: the settings to start from; by default they follow the backbone and the data.
        config: the config.json of a run to repeat, in place of a preset; arguments given with it
            win.
        tune: a numeric setting of the method to choose from a grid without the target's labels;
            `entropy="auto"` is `tune="entropy"`.
        validator: the validator to choose it by.
        data: the folder that holds the known data sets.
        unlabelled: do not take the target's folders for classes.
        minutes: the time that there is: image size, backbone and steps that are not given are
            chosen to fit. A run that is resumed keeps to its plan.
        options: fields of `Settings`, of the method (`reference`, `entropy`, ...; `method.NAME`
            where both have a field of that name) and of `Execution` (`device`, `quiet`, ...).
            `method` and `backbone` also take objects: a `Method`, a `Backbone` or a network.

    Returns:
        The finished run.

    Raises:
        DialError: something is wrong with the images, the settings or the run's folder.
    """
    inputs = {"source": source, "target": target, "data": data, "unlabelled": unlabelled}
    base: Settings | None = None
    if config is not None:
        base, recorded, executed = run_folder.replay(config)
        inputs, options = inputs | recorded | _given(inputs), executed | _given(options)
    execution, options = _split(options)
    job = _open(inputs, execution)
    settings = choose(base or preset or _preset_for(job.source, options), options)
    folder, train = Path(out), partial(_run, job)
    if minutes is not None:
        settings = _fit_into(minutes, settings, options, job, folder)
    search = tuning.plan(settings, tune=tune, validator=validator)
    if search is None:
        return train(settings, folder, resume=resume)
    tuning.tune(
        search,
        folder,
        (job.source, job.target),
        train=train,
        resume=resume,
        prune=execution.devices == 1,
        quiet=execution.quiet,
    )
    _write_page(folder, execution)
    return runs.load(folder)


@dataclass(frozen=True)
class Job:
    """What all runs of one call share: the domains, what they were opened from, the execution."""

    source: LabelledDomain
    target: Domain
    inputs: dict[str, Any]
    execution: Execution


@dataclass(frozen=True)
class Plan:
    """One run before its images are read."""

    job: Job
    settings: Settings
    method: Method
    backbone: Backbone
    random_state: Tensor
    """Of torch, once the backbone is built: every process goes on from here."""


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _split(options: dict[str, Any]) -> tuple[Execution, dict[str, Any]]:
    """Returns the execution that the options ask for, and the other options."""
    names = {f.name for f in fields(Execution)}
    execution = Execution(**{k: v for k, v in _given(options).items() if k in names})
    return execution, {key: value for key, value in options.items() if key not in names}


def _open(inputs: dict[str, Any], execution: Execution) -> Job:
    """Open both domains; no image is read yet."""
    source, target = inputs["source"], inputs["target"]
    if source is None or target is None:
        raise DialError(
            wanted="a source and a target",
            got="none" if source is None else f"{source} alone",
            fix="name both, or repeat a run with --config RUN/config.json",
        )
    unlabelled = bool(inputs["unlabelled"])
    domains = open_pair(source, target, data=inputs["data"], unlabelled=unlabelled)
    places = {name: _absolute(inputs[name]) for name in ("source", "target", "data")}
    return Job(*domains, places | {"unlabelled": unlabelled}, execution)


def _fit_into(
    minutes: float, settings: Settings, options: dict[str, Any], job: Job, folder: Path
) -> Settings:
    """Returns the settings of a plan that fits into the time; says what it is."""
    if run_folder.holds_run(folder):  # the plan that it began with
        return run_folder.replay(folder / "config.json")[0]
    budget = budgets.fit(settings, options, (job.source, job.target), minutes=minutes)
    Reporter(quiet=job.execution.quiet, title="").say(f"in {minutes:g} min: {budget}")
    return budget.settings


def _absolute(place: Any) -> str | None:
    """Returns a path that holds from any folder, a known domain's name as it is."""
    if place is None or isinstance(place, Domain):
        return None
    path = Path(place).expanduser()
    return str(path.resolve()) if path.exists() else os.fspath(place)


def _preset_for(source: Domain, options: dict[str, Any]) -> str:
    default = "digits_cnn" if source.images.like_digits else PHOTOGRAPHS
    return preset_for(options.get("backbone"), default=default)


def _run(
    job: Job, settings: Settings, folder: Path, *, resume: bool, attempt: Attempt | None = None
) -> Run:
    """One run: its folder is begun, one process or several do the work, the result is loaded."""
    method = methods.create(settings.method, settings.options)  # mistakes show before reading
    network = None if isinstance(settings.backbone, str) else settings.backbone
    domains = job.source, job.target
    if run_folder.is_finished(folder, run_folder.describe(settings, domains), resume=resume):
        return runs.load(folder, backbone=network)
    torch.manual_seed(settings.seed)
    backbone = backbones.create(
        settings.backbone,
        num_classes=len(job.source.labels.classes),
        weights=settings.weights,
        align_logits=settings.align_logits,
        frozen=settings.frozen,
    )
    if not run_folder.holds_run(folder):
        config = run_folder.describe(
            settings.resolve(method, backbone),
            domains,
            automatic=run_folder.left_to_backbone(settings),
            input=job.inputs,
            execution=asdict(job.execution),
        )
        files.write_json(folder / "config.json", config)
    plan = Plan(job, settings, method, backbone, torch.get_rng_state())
    launch(_process, plan, folder, attempt, resume=resume, execution=job.execution)
    return runs.load(folder, backbone=network)


def _process(
    fabric: Any, plan: Plan, folder: Path, attempt: Attempt | None, *, resume: bool
) -> None:
    """One process of a run; the first one also finishes, judges and writes."""
    torch.set_rng_state(plan.random_state)
    if fabric.world_size > 1:  # tensors reach spawned processes in memory that they share
        plan = replace(plan, backbone=copy.deepcopy(plan.backbone))
    process = Process(fabric, plan, folder, attempt)
    trainee, progress = process.train(resume=resume)
    if fabric.is_global_zero:
        predictor, unadapted, chosen = process.finish(trainee)
        outputs, figures = process.judge(predictor, unadapted)
        process.write(predictor, outputs, progress, figures | chosen)


class Process:
    """The work of one process, in the order of its methods."""

    def __init__(self, fabric: Any, plan: Plan, folder: Path, attempt: Attempt | None) -> None:
        self.fabric, self.folder, self.attempt = fabric, folder, attempt
        self.settings, self.method, self.backbone = plan.settings, plan.method, plan.backbone
        self.execution = plan.job.execution
        pair = f"{plan.job.source.name} -> {plan.job.target.name}"
        self.reporter = Reporter(
            quiet=self.execution.quiet or not fabric.is_global_zero,
            title=attempt.title if attempt else f"{name_of(self.settings.method)}: {pair}",
            scores=attempt is None,
        )
        self.images = self._prepare(plan.job)
        self.first: Candidate | None = None
        """The predictor that is finished before any training, if the method has one."""
        self.began = 0.0
        """Seconds until then."""
        # A cell of a benchmark, without a page and a held-out source, is judged by labels alone.
        self.is_judged = self.execution.report or self.settings.holdout > 0

    def _prepare(self, job: Job) -> Observer:
        """Read all images, and hold a part of the source out of training."""
        preprocessing = Preprocessing.for_network(self.backbone, self.settings.image_size)
        with self.fabric.rank_zero_first():  # the others find the cache built
            source, target = prepare_pair(
                job.source,
                job.target,
                resize=preprocessing.resize,
                channels=preprocessing.channels,
                skip_bad=self.execution.skip_bad,
                cache_dir=self.execution.cache_dir,
                use_cache=self.execution.use_cache,
                quiet=self.reporter.quiet,
            )
        source, held_out = hold_out(source, self.settings.holdout, seed=self.settings.seed)
        classifier, quiet = self.backbone.classifier, self.reporter.quiet
        return Observer(source, held_out, target, preprocessing, classifier, quiet)

    def train(self, *, resume: bool) -> tuple[Trainee, Progress]:
        """Train to the last step, from the start or from the checkpoint."""
        source, target = self.images.source, self.images.target
        batches = Batches(
            source.pixels,
            source.labels,
            target.pixels if self.method.needs_target else None,
            preprocessing=self.images.preprocessing,
            batch_size=self.settings.batch_size,
            seed=self.settings.seed,
            rank=self.fabric.global_rank,
            world_size=self.fabric.world_size,
            workers=self.execution.workers,
        )
        trainee = self.method.prepare(self.backbone)
        trainee.to(self.fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._begin(trainee)
        if not self.method.trains:
            return trainee, Progress()
        with self.reporter:
            progress = engine.fit(
                trainee,
                self.method,
                batches,
                settings=self.settings,
                fabric=self.fabric,
                checkpoint=self.folder / "last.ckpt",
                resume=resume,
                on_epoch=self._end_epoch,
                on_step=self.reporter.step,
                on_refresh=self._refresh,
            )
        return trainee, progress

    def _begin(self, trainee: Trainee) -> None:
        """Let the method initialize the classifier, and show what is finished already."""
        started = time.perf_counter()
        self.first = self.method.begin(trainee, self._some())
        self.began = time.perf_counter() - started
        if self.first is not None and self.method.trains:
            self.reporter.first(self._score(self.first), seconds=self.began)

    def _score(self, candidate: Candidate) -> float | None:
        """Returns the accuracy on the target images that a candidate has logits of."""
        target = self.images.target
        if target.labels is None:
            return None
        rows = target.pixels.order[: len(candidate.logits)]
        return _accuracy(candidate.logits, target.labels.indices[rows])

    def _refresh(self, trainee: Trainee) -> None:
        self.method.refresh(trainee, self._some(quiet=True), self.first)

    def _some(self, *, quiet: bool = False) -> Images:
        """Returns a fair sample of both domains, to fit classifiers to."""
        some = sample(self.images.source, FITTED[0])
        images = self.images.batches(some, quiet=quiet)
        labels = torch.from_numpy(some.labels.indices[images.rows])
        return Images(
            images, labels, self.images.batches(self.images.target, FITTED[1], quiet=quiet)
        )

    def _end_epoch(self, trainee: Trainee, metrics: dict[str, Any]) -> None:
        """Score and report an epoch; a trial that is far behind others is stopped here."""
        target, classes = self.images.target, self.images.source.labels.classes
        watched = max(WATCHED, accuracy.PREDICTIONS_PER_CLASS * len(classes))
        images = self.images.batches(target, watched, quiet=True)
        logits = models.predict(trainee.network, images)
        metrics["target_classes_predicted"] = len(logits.argmax(1).unique())
        if target.labels is not None:
            metrics["target_accuracy"] = _accuracy(logits, target.labels.indices[images.rows])
        if metrics["step"] >= _SETTLED:
            self._warn_of_collapse(logits)
        self.reporter.epoch(metrics)
        if self.attempt is not None and self.attempt.judge is not None:
            look = partial(self.images.midway, trainee.network)
            self.attempt.judge(metrics["epoch"], look)

    def finish(self, trainee: Trainee) -> tuple[nn.Module, nn.Module | None, dict[str, Any]]:
        """Returns the target's predictor, the one without adaptation, and how it came about.

        The second is there only where the run is judged and the method has one.
        """
        source, target, unadapted = self.images.source, self.images.target, None
        if self.is_judged:
            with self._optional("network without adaptation"):
                unadapted = self.method.unadapted(trainee, self.images.batches(source, SAMPLE))
        labelled = self.images.batches(source)
        labels = torch.from_numpy(source.labels.indices[labelled.rows])
        every, some = Images(labelled, labels, self.images.batches(target)), self._some()
        self.method.finish(trainee, every)
        found = self.method.figures(trainee)
        candidates = self.method.candidates(trainee, some, self.first)
        if self.first is not None:
            candidates = [self.first, *candidates]
        if not candidates:
            return self.method.predictor(trainee, every), unadapted, found
        chosen, scores = choice.choose(candidates, some.source_labels)
        figures = {
            "predictor": chosen.name,
            "candidates": [
                {"name": each.name, "score": score, "target_accuracy": self._score(each)}
                for each, score in zip(candidates, scores, strict=True)
            ],
            "absent_classes": [source.labels.classes[label] for label in chosen.absent],
        }
        self.reporter.candidates(figures)
        return chosen.network, unadapted, found | figures

    def judge(
        self, predictor: nn.Module, unadapted: nn.Module | None
    ) -> tuple[Outputs | None, dict[str, Any]]:
        """Returns the outputs, and what goes into result.json beside the run's description.

        The target's labels have a part in `target_accuracy` alone.
        """
        target = self.images.target
        seen: Outputs | None = None
        figures: dict[str, Any] = {"estimated_accuracy": None}
        if self.is_judged:
            with self._optional("outputs to judge it by, and no report"):
                seen = self.images.look(predictor, unadapted)
                figures |= accuracy.judge(seen.with_features(), holdout=self.settings.holdout)
        if seen is None:
            logits = models.predict(predictor, self.images.batches(target))
        else:
            logits = torch.from_numpy(seen.target.logits)
        logits = logits[np.argsort(target.pixels.order)]  # row by row, as the labels are
        self._warn_of_collapse(logits)
        score = None if target.labels is None else _accuracy(logits, target.labels.indices)
        return seen, {"target_accuracy": score, "target_images": len(logits), **figures}

    def write(
        self,
        predictor: nn.Module,
        seen: Outputs | None,
        progress: Progress,
        figures: dict[str, Any],
    ) -> None:
        """Write the model, the metrics and the page; result.json makes the run finished."""
        source, target, folder = self.images.source, self.images.target, self.folder
        classes = source.labels.classes
        if seen is not None:
            with self._optional("outputs beside it"):
                outputs.save(folder, seen, classes=classes)
        if seen is not None and self.execution.report:
            with self._optional("evidence for a report"):
                evidence = record.record(self.method, seen, source=source, target=target)
                record.save(folder / record.NAME, evidence)
        network = models.plain(predictor.cpu(), self.backbone)
        model = models.Model(network, classes, self.images.preprocessing, self.backbone.name)
        models.save(folder / "model.safetensors", model)
        runs.keep_samples(folder, target.pixels.read(target.pixels.order[:_SAMPLES]))
        lines = [json.dumps(metrics) for metrics in progress.history]
        files.write_text(folder / "metrics.jsonl", "".join(f"{line}\n" for line in lines))
        reference = self.method.reference_for(self.backbone)
        result = {
            "method": name_of(self.settings.method),
            "backbone": self.backbone.name,
            "reference": reference if isinstance(reference, str | None) else repr(reference),
            "source": source.name,
            "target": target.name,
            "seed": self.settings.seed,
            "epochs": len(progress.history),
            "steps": progress.step,
            "seconds": round(self.began + progress.seconds, 3),
            **figures,
        }
        files.write_json(folder / "result.json", result)
        self.reporter.finished(result, folder)
        with self._optional("report"):
            page = _write_page(folder, self.execution)
            if page is not None:
                self.reporter.say(f"report: {page}")

    @contextmanager
    def _optional(self, what: str) -> Iterator[None]:
        """Let a trained run end well even if something that only describes it fails."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the model is worth more
            self.reporter.warn(f"the run has no {what} ({type(error).__name__}: {error})")

    def _warn_of_collapse(self, logits: Tensor) -> None:
        warning = accuracy.collapse(logits.argmax(1).numpy(), logits.shape[1])
        if warning:
            self.reporter.warn(warning)


def _write_page(folder: Path, execution: Execution) -> Path | None:
    """Write report.html where it is wanted and there is something to show; returns its path."""
    if not (execution.report and (folder / record.NAME).exists()):
        return None
    return report(folder)


def _accuracy(logits: Tensor, labels: Any) -> float:
    """Returns the fraction of images that are predicted as labelled."""
    return float(np.mean(logits.argmax(1).numpy() == labels))
