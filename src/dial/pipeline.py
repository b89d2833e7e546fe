"""From two domains to a finished predictor: prepare, train, finish, judge, write."""

import copy
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from dial import backbones, files, methods
from dial.backbones import Backbone
from dial.console import Reporter
from dial.data.batches import Batches
from dial.data.domain import short_names
from dial.data.holdout import hold_out, sample
from dial.data.prepare import PreparedSource, prepare_domains
from dial.data.transforms import Preprocessing
from dial.deployment import memory, pretrained, runs
from dial.deployment import model as models
from dial.deployment.memory import Memory
from dial.deployment.origin import Origin, Start, open_origin
from dial.deployment.pretrained import Before
from dial.deployment.runs import Run, TargetRuns
from dial.errors import DialError
from dial.layers import use_domain_if_any
from dial.methods import ByDomain, Candidate, Images, Method, Trainee
from dial.reporting import record
from dial.reporting.report import report
from dial.selection import accuracy, choice, outputs, tuning
from dial.selection.neighborhood import look_around
from dial.selection.outputs import SAMPLE, Observer, Outputs, Unadapted
from dial.selection.tuning import Attempt
from dial.selection.validators import Validator
from dial.training import budget as budgets
from dial.training import engine, run_folder, torchrun
from dial.training.budget import FITTED, WATCHED
from dial.training.engine import Progress
from dial.training.job import Job, Place, listed, open_job
from dial.training.launch import Execution, in_turn, launch, lead, require_same
from dial.training.settings import (
    PHOTOGRAPHS,
    Settings,
    choose,
    convert,
    name_of,
    preset_for,
)

_SETTLED = 100  # steps after which running statistics are good enough to judge an epoch by
_SAMPLES = 16  # target images that are kept to try exported networks on
_SCORES = "target_accuracy", "target_classes_predicted"  # in an epoch's metrics
_SHARED = "method", "backbone", "reference", "source", "seed", "epochs", "steps", "seconds"


@overload
def adapt(
    source: Place | Sequence[Place] | None = ...,
    target: Place | None = ...,
    *,
    out: str | os.PathLike[str],
    **options: Any,
) -> Run: ...
@overload
def adapt(
    source: Place | Sequence[Place],
    target: list[Place] | list[str] | tuple[Place, ...],
    *,
    out: str | os.PathLike[str],
    **options: Any,
) -> TargetRuns: ...
def adapt(
    source: Place | Sequence[Place] | None = None,
    target: Place | Sequence[Place] | None = None,
    *,
    out: str | os.PathLike[str],
    model: Start | None = None,
    classes: str | os.PathLike[str] | Sequence[str] | None = None,
    labelled: Place | None = None,
    resume: bool = False,
    preset: str | None = None,
    config: str | os.PathLike[str] | None = None,
    tune: str | None = None,
    validator: str | Validator | None = None,
    data: str | os.PathLike[str] | None = None,
    unlabelled: bool | None = None,
    minutes: float | None = None,
    **options: Any,
) -> Run | TargetRuns:
    """Train a classifier on the source that works on the target.

    Args:
        source: class folders, an image list, a known domain like `office31:amazon`, or a `Domain`;
            or a list of several, each of which is a domain with its own statistics.
        target: any folder of images, an image list, a known domain, or a `Domain`. Its labels, if
            it has any, are used for scoring alone. A list of several gives one network, with a
            predictor for each in a folder of its own.
        out: the run's folder.
        model: a finished model to go on from, in place of a source: a run or its folder; a network,
            with `classes`; or a file of weights, with `backbone` and `classes`. With `steps=0` it
            gets the target's statistics and nothing else.
        classes: the names of such a network's classes, in the order of its outputs, or a text file
            with one on a line.
        labelled: images of the target whose labels take part in training: class folders, or a list
            of paths and labels. They are never scored.
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
        The finished run; of a list of targets a mapping from their names to their runs.

    Raises:
        DialError: something is wrong with the images, the settings or the run's folder.
    """
    inputs: dict[str, Any] = {"source": listed(source), "target": listed(target), "data": data}
    inputs |= {"unlabelled": unlabelled, "model": model, "classes": classes, "labelled": labelled}
    base: Settings | None = None
    if config is not None:
        base, recorded, executed = run_folder.replay(config, inputs)
        if recorded.get("model") and inputs["target"] is None:  # the only domain is the target
            inputs |= {"source": None, "target": inputs["source"]}
        elif inputs["model"] is not None:
            recorded.pop("source")
        inputs, options = inputs | recorded | _given(inputs), executed | _given(options)
    execution, options = _split(options)
    decide = partial(_adapt, inputs, options, base, execution, out=Path(out), resume=resume)
    choices: dict[str, Any] = {"preset": preset, "tune": tune, "validator": validator}
    choices |= {"minutes": minutes, "is_list": isinstance(target, list | tuple)}
    return lead(partial(decide, **choices), execution)


def _adapt(
    inputs: dict[str, Any],
    options: dict[str, Any],
    base: Settings | None,
    execution: Execution,
    *,
    out: Path,
    resume: bool,
    preset: str | None,
    tune: str | None,
    validator: str | Validator | None,
    minutes: float | None,
    is_list: bool,
) -> Run | TargetRuns:
    """Open the domains, settle the settings, and do one run or a search; in one process."""
    origin = None
    if inputs["model"] is not None:
        _refuse(options | {"minutes": minutes, "tune": tune})
        origin, options = _go_on(inputs, options, base)
    elif inputs["classes"] is not None:
        raise DialError(
            wanted="the classes of a finished model to go on from",
            got="--classes without --from",
            fix="leave it out: the classes are those of the source",
        )
    job = open_job(inputs, execution, classes=origin.classes if origin else None)
    settings = choose(base or preset or _preset_for(job, options), options)
    _check_inputs(job, settings)
    job = job.merged() if settings.merge_sources else job
    train = partial(_run, job, origin=origin)
    if minutes is not None:
        settings = _fit_into(minutes, settings, options, job, out)
    search = tuning.plan(settings, tune=tune, validator=validator)
    if search is None:
        return _as_asked(train(settings, out, resume=resume), job, is_list=is_list)
    if origin is not None:
        _refuse({"tune": search.field})
    if len(job.targets) > 1:
        raise DialError(
            wanted=f"one target to choose {search.field} for",
            got=f"{len(job.targets)} targets",
            fix="tune on one of them, and pass the value that it chooses",
        )
    tuning.tune(
        search,
        out,
        job.domains,
        train=train,
        resume=resume,
        prune=execution.devices == 1,
        quiet=execution.quiet,
        about=_about(job, origin),
    )
    _write_page(out, execution)
    return _as_asked(runs.load(out), job, is_list=is_list)


def _as_asked(found: Run | TargetRuns, job: Job, *, is_list: bool) -> Run | TargetRuns:
    """Returns a mapping if targets were given as a list, also as a list of one."""
    if isinstance(found, TargetRuns) or not is_list:
        return found
    (name,) = short_names(job.targets)
    return TargetRuns(found.folder, {name: found}, found.result, found.history)


@dataclass(frozen=True)
class Plan:
    """One run before its images are read."""

    job: Job
    origin: Origin | None
    """The finished model that stands in the place of a source."""
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
    given = _given({"devices": torchrun.size()}) | _given(options)
    execution = Execution(**{k: v for k, v in given.items() if k in names})
    return execution, {key: value for key, value in options.items() if key not in names}


def _fit_into(
    minutes: float, settings: Settings, options: dict[str, Any], job: Job, folder: Path
) -> Settings:
    """Returns the settings of a plan that fits into the time; says what it is."""
    if run_folder.holds_run(folder):  # the plan that it began with
        return run_folder.replay(folder / "config.json")[0]
    budget = budgets.fit(settings, options, job.domains, minutes=minutes)
    Reporter(quiet=job.execution.quiet, title="").say(f"in {minutes:g} min: {budget}")
    return budget.settings


def _go_on(
    inputs: dict[str, Any], options: dict[str, Any], base: Settings | None
) -> tuple[Origin, dict[str, Any]]:
    """Returns the model to go on from, and the options of a run that does.

    `base` are the settings of a run that is repeated.
    """
    size = options.get("image_size") or (base.image_size if base else None)
    origin = open_origin(
        inputs["model"],
        classes=inputs["classes"],
        backbone=options.get("backbone") or (base.backbone if base else None),
        image_size=None if size is None else convert("image_size", str(size), "int"),
    )
    given = _given(options)
    if str(given.get("steps")) == "0" and given.get("method", "recalibrate") == "recalibrate":
        given.pop("steps")
        given["method"] = "recalibrate"
    if base is None:
        given.setdefault("method", "source_free")
    given |= {"backbone": origin.backbone.name, "weights": origin.weights}
    if backbones.is_object(origin.backbone.name):
        given["backbone"] = origin.backbone
    return origin, {"image_size": origin.preprocessing.size} | given


def _refuse(options: Mapping[str, Any]) -> None:
    """Refuse settings that mean nothing without a source, or to a finished network."""
    names = ("minutes", "tune", "append_after", "align_logits", "weights")
    for name in names:
        if options.get(name) is not None:
            raise DialError(
                wanted="settings for a run that goes on from a finished model",
                got=f"{name}, which is for a run with a source",
                fix="leave it out; --steps N sets the length of the training",
            )


def _about(job: Job, origin: Origin | None) -> dict[str, Any]:
    """Returns what config.json says about a model to go on from, and about given labels."""
    about: dict[str, Any] = {"origin": origin.describe() if origin else None}
    if job.labelled is not None:
        labels = hashlib.blake2b(job.labelled.labels.indices.tobytes(), digest_size=16)
        images = job.labelled.images.fingerprint
        about["labelled"] = [job.labelled.name, images, labels.hexdigest()]
    return about


def _check_inputs(job: Job, settings: Settings) -> None:
    """Refuse a method that cannot use what there is, or needs what there is not."""
    method = methods.kind(settings.method)
    name = name_of(settings.method)
    if method.needs_source and not job.sources:
        raise DialError(
            wanted="a method that goes on from a finished model: source_free, or recalibrate",
            got=f"{name}, which needs the images of a source",
            fix="leave --method out, or name a source in place of --from",
        )
    if job.sources and not method.needs_source:
        raise DialError(
            wanted=f"a finished model for {name} to go on from",
            got="a source",
            fix="dial adapt --from RUN TARGET, or another --method",
        )
    if job.labelled is not None and not method.takes_labelled:
        names = [each for each in methods.names() if methods.kind(each).takes_labelled]
        raise DialError(
            wanted=f"a method that learns from labelled target images: {', '.join(names)}",
            got=name,
            fix="choose one of those, or leave --labelled out",
        )


def _preset_for(job: Job, options: dict[str, Any]) -> str:
    is_small = job.sources and job.sources[0].images.like_digits
    return preset_for(options.get("backbone"), default="digits_cnn" if is_small else PHOTOGRAPHS)


def _run(
    job: Job,
    settings: Settings,
    folder: Path,
    *,
    resume: bool,
    attempt: Attempt | None = None,
    origin: Origin | None = None,
) -> Run | TargetRuns:
    """One run: its folder is begun, one process or several do the work, the result is loaded."""
    method = methods.create(settings.method, settings.options)  # mistakes show before reading
    network = None if isinstance(settings.backbone, str) else settings.backbone
    about = _about(job, origin)
    config = run_folder.describe(settings, job.domains, **about)
    if run_folder.is_finished(folder, config, resume=resume):
        return runs.load_all(folder, backbone=network)
    torch.manual_seed(settings.seed)
    sources, targets = job.names()
    backbone = replace(_backbone(settings, job, origin), sources=sources, targets=targets)
    if not run_folder.holds_run(folder):
        with torch.random.fork_rng(devices=[]):  # what it refuses leaves nothing behind
            method.prepare(copy.deepcopy(backbone))
        config = run_folder.describe(
            settings.resolve(method, backbone),
            job.domains,
            **about,
            automatic=run_folder.left_to_backbone(settings),
            input=job.inputs | ({"model": origin.place} if origin else {}),
            execution=asdict(job.execution),
        )
        files.write_json(folder / "config.json", config)
    plan = Plan(job, origin, settings, method, backbone, torch.get_rng_state())
    launch(_process, plan, folder, attempt, resume=resume, execution=job.execution)
    return runs.load_all(folder, backbone=network)


def _backbone(settings: Settings, job: Job, origin: Origin | None) -> Backbone:
    """Returns the network to train: a new one, or a copy of the finished one to go on from."""
    if origin is not None:
        frozen = origin.backbone.frozen if settings.frozen is None else settings.frozen
        network = copy.deepcopy(origin.backbone.network)
        return replace(origin.backbone, network=network, frozen=frozen)
    return backbones.create(
        settings.backbone,
        num_classes=len(job.classes),
        weights=settings.weights,
        image_size=settings.image_size,
        append_after=settings.append_after,
        align_logits=settings.align_logits,
        frozen=settings.frozen,
    )


def _process(
    fabric: Any, plan: Plan, folder: Path, attempt: Attempt | None, *, resume: bool
) -> None:
    """One process of a run; the first one also finishes, judges and writes."""
    torch.set_rng_state(plan.random_state)
    if fabric.world_size > 1:  # tensors reach spawned processes in memory that they share
        plan = replace(plan, backbone=copy.deepcopy(plan.backbone))
    process = Process(fabric, plan, folder, attempt)
    trainee, progress = process.train(resume=resume)
    if not fabric.is_global_zero:
        return
    unadapted, results = process.unadapted(trainee), {}
    for images in process.images:
        predictor, chosen = process.finish(trainee, images)
        outputs, figures = process.judge(images, predictor, unadapted)
        result = process.write(images, predictor, outputs, progress, figures | chosen)
        results[images.domain] = result
    process.conclude(results, progress)


class Process:
    """The work of one process, in the order of its methods."""

    def __init__(self, fabric: Any, plan: Plan, folder: Path, attempt: Attempt | None) -> None:
        self.fabric, self.folder, self.attempt = fabric, folder, attempt
        self.settings, self.method, self.backbone = plan.settings, plan.method, plan.backbone
        self.execution, self.origin = plan.job.execution, plan.origin
        self.classes = plan.job.classes
        sides = [" + ".join(domain.name for domain in side) for side in plan.job.domains]
        self.start = sides[0] or (self.origin.name if self.origin else "")
        """The sources, or the model to go on from, by name."""
        pair = f"{self.start} -> {sides[1]}"
        self.reporter = Reporter(
            quiet=self.execution.quiet or not fabric.is_global_zero,
            title=attempt.title if attempt else f"{name_of(self.settings.method)}: {pair}",
            scores=attempt is None,
        )
        self.images = self._prepare(plan.job)
        """For each target, what sends its images and the sources' through a network."""
        self.first: dict[str, Candidate] = {}
        """The predictors that are finished before any training, if the method has any."""
        self.began = 0.0
        """Seconds until then."""
        self.chosen: dict[str, Candidate] = {}
        """The predictors that were chosen among candidates, if there were any."""
        self.before: dict[str, Before] = {}
        """Features by the network that training began from, of the sources and each target."""
        self.pretrained: Backbone | None = None
        """That network, if it is a pretrained one and at hand."""
        # A cell of a benchmark, without a page and a held-out source, is judged by labels alone.
        self.is_judged = self.execution.report or self.settings.holdout > 0

    def _prepare(self, job: Job) -> list[Observer]:
        """Read all images, and hold a part of each source out of training."""
        preprocessing = Preprocessing.for_network(self.backbone, self.settings.image_size)
        if self.origin is not None and self.origin.preprocessing.size == preprocessing.size:
            preprocessing = self.origin.preprocessing
        read = partial(
            prepare_domains,
            *job.domains,
            labelled=job.labelled,
            resize=preprocessing.resize,
            channels=preprocessing.channels,
            skip_bad=self.execution.skip_bad,
            cache_dir=self.execution.cache_dir,
            use_cache=self.execution.use_cache,
            quiet=self.reporter.quiet,
        )
        prepared, targets = in_turn(self.fabric, read)  # the others find the cache built
        digests = [hashlib.blake2b(d.pixels.digests.tobytes()) for d in (*prepared, *targets)]
        require_same(self.fabric, "images", [digest.hexdigest() for digest in digests])
        sources: dict[str, PreparedSource] = {}
        held_out: dict[str, PreparedSource] = {}
        for name, whole in zip(self.backbone.sources, prepared, strict=True):
            sources[name], rest = hold_out(whole, self.settings.holdout, seed=self.settings.seed)
            held_out |= {} if rest is None else {name: rest}
        classifier, quiet = self.backbone.classifier, self.reporter.quiet
        return [
            Observer(sources, held_out, name, target, preprocessing, classifier, quiet)
            for name, target in zip(self.backbone.targets, targets, strict=True)
        ]

    def train(self, *, resume: bool) -> tuple[Trainee, Progress]:
        """Train to the last step, from the start or from the checkpoint."""
        sources, targets = self._sources(), [images.target for images in self.images]
        batches = Batches(
            [source.pixels for source in sources.values()],
            [source.labels for source in sources.values()],
            [target.pixels for target in targets] if self.method.needs_target else None,
            labelled=targets[0].labelled if self.method.needs_target else None,
            preprocessing=self.images[0].preprocessing,
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

    def _sources(self) -> Mapping[str, PreparedSource]:
        return self.images[0].sources

    def _begin(self, trainee: Trainee) -> None:
        """Let the method initialize the classifier, and show what is finished already."""
        started = time.perf_counter()
        self.first = self.method.begin(trainee, self._some(self.images))
        self.began = time.perf_counter() - started
        if self.first and self.method.trains:
            for images in self.images:
                score = self._score(images, self.first[images.domain])
                self.reporter.first(score, seconds=self.began, target=self._name(images))

    def _name(self, images: Observer) -> str:
        """Returns the target's name where there are several, for messages."""
        return images.domain if len(self.images) > 1 else ""

    def _score(self, images: Observer, candidate: Candidate) -> float | None:
        """Returns the accuracy on the target images that a candidate has logits of."""
        target = images.target
        if target.labels is None:
            return None
        rows = target.pixels.order[: len(candidate.logits)]
        scored = np.full(len(rows), True) if target.known is None else target.known[rows] < 0
        return _accuracy(candidate.logits[scored], target.labels.indices[rows[scored]])

    def _refresh(self, trainee: Trainee) -> None:
        self.method.refresh(trainee, self._some(self.images, quiet=True), self.first)

    def _some(self, observers: Sequence[Observer], *, quiet: bool = False) -> Images:
        """Returns a fair sample of the sources and of some targets, to fit classifiers to."""
        sources = self._sources()
        most = FITTED[0] // max(1, len(sources))
        some = {name: sample(source, most) for name, source in sources.items()}
        return self._images(some, observers, FITTED[1], quiet=quiet)

    def _images(
        self,
        sources: Mapping[str, PreparedSource],
        observers: Sequence[Observer],
        most: int | None = None,
        *,
        quiet: bool = False,
    ) -> Images:
        """Returns images of the sources and at most so many of each target."""
        read = partial(self.images[0].batches, quiet=quiet)
        batches = {name: read(source) for name, source in sources.items()}
        labels = [np.zeros(0, dtype=np.int64)]  # also where there is no source
        labels += [sources[name].labels.indices[images.rows] for name, images in batches.items()]
        sizes = [len(images.target.pixels) for images in self.images]
        starts = np.cumsum([0, *sizes])[:-1].tolist()
        targets = {each.domain: read(each.target, most) for each in observers}
        known = {
            each.domain: torch.from_numpy(each.target.known[targets[each.domain].rows])
            for each in observers
            if each.target.known is not None
        }
        return Images(
            ByDomain(batches),
            torch.from_numpy(np.concatenate(labels)),
            ByDomain(targets),
            dict(zip(self.backbone.targets, starts, strict=True)),
            known,
            self.origin.prototypes if self.origin else None,
            self.origin.pretrained if self.origin else None,
        )

    def _end_epoch(self, trainee: Trainee, metrics: dict[str, Any]) -> None:
        """Score and report an epoch; a trial that is far behind others is stopped here."""
        watched = max(WATCHED, accuracy.PREDICTIONS_PER_CLASS * self.backbone.num_classes)
        scores = {}
        for observer in self.images:
            target, name = observer.target.scored, self._name(observer)
            images = observer.batches(target, watched, quiet=True)
            with use_domain_if_any(trainee.network, observer.domain):
                logits = models.predict(trainee.network, images)
            suffix = f"_{name}" if name else ""
            metrics[f"target_classes_predicted{suffix}"] = len(logits.argmax(1).unique())
            if target.labels is not None:
                scores[suffix] = _accuracy(logits, target.labels.indices[images.rows])
            if metrics["step"] >= _SETTLED:
                self._warn_of_collapse(logits, name)
        metrics |= {f"target_accuracy{suffix}": score for suffix, score in scores.items()}
        if scores and "" not in scores:
            metrics["target_accuracy"] = float(np.mean([*scores.values()]))
        self.reporter.epoch(metrics)
        if self.attempt is not None and self.attempt.judge is not None:
            look = partial(self.images[0].midway, trainee.network)
            self.attempt.judge(metrics["epoch"], look)

    def unadapted(self, trainee: Trainee) -> Unadapted:
        """Returns the network without adaptation, if the run is judged and the method has one."""
        sources = self._sources()
        if not sources:
            return self._as_it_came(trainee)
        most, read = SAMPLE // len(sources), self.images[0].batches
        networks: list[nn.Module | None] = []
        if self.is_judged:
            with self._optional("network without adaptation"):
                few = {name: read(source, most) for name, source in sources.items()}
                each = [ByDomain({name: some}) for name, some in few.items()]
                parts = [ByDomain(few), *(each if len(few) > 1 else ())]
                networks = [self.method.unadapted(trainee, part) for part in parts]
        if not networks or None in networks:
            return Unadapted()
        whole, *of_each = networks
        by_source = {n: net for n, net in zip(sources, of_each, strict=False) if net is not None}
        return Unadapted(whole, by_source)

    def _as_it_came(self, trainee: Trainee) -> Unadapted:
        """Returns the finished model that the run started from."""
        if self.first:
            return Unadapted(next(iter(self.first.values())).network)
        return Unadapted(self.method.unadapted(trainee, ()))

    def finish(self, trainee: Trainee, images: Observer) -> tuple[nn.Module, dict[str, Any]]:
        """Returns a target's predictor, and how it came about."""
        sources = self._sources()
        every, some = self._images(sources, [images]), self._some([images])
        self.method.finish(trainee, every)
        found = self.method.figures(trainee)
        first = self.first.get(images.domain)
        candidates = self.method.candidates(trainee, some, first)
        if first is not None:
            candidates = [first, *candidates]
        if not candidates:
            return self.method.predictor(trainee, every), found
        labels = candidates[0].labels
        chosen, scores = choice.choose(candidates, some.source_labels if labels is None else labels)
        self.chosen[images.domain] = chosen
        figures = {
            "predictor": chosen.name,
            "candidates": [
                {"name": each.name, "score": score, "target_accuracy": self._score(images, each)}
                for each, score in zip(candidates, scores, strict=True)
            ],
            "absent_classes": [self.classes[label] for label in chosen.absent],
        }
        self.reporter.candidates(figures, target=self._name(images))
        return chosen.network, found | figures

    def judge(
        self, images: Observer, predictor: nn.Module, unadapted: Unadapted
    ) -> tuple[Outputs | None, dict[str, Any]]:
        """Returns the outputs, and what goes into result.json beside the run's description.

        The target's labels have a part in `target_accuracy` alone.
        """
        target = images.target.scored
        seen: Outputs | None = None
        figures: dict[str, Any] = {"estimated_accuracy": None}
        if self.is_judged:
            with self._optional("outputs to judge it by, and no report"):
                seen = self._look(images, predictor, unadapted)
                holdout = self.settings.holdout
                figures |= accuracy.judge(seen, holdout=holdout, classes=self.classes)
        if seen is None:
            logits = models.predict(predictor, images.batches(target))
        else:
            logits = torch.from_numpy(seen.target.logits)
        logits = logits[np.argsort(target.pixels.order)]  # row by row, as the labels are
        self._warn_of_collapse(logits, self._name(images))
        score = None if target.labels is None else _accuracy(logits, target.labels.indices)
        return seen, {"target_accuracy": score, "target_images": len(logits), **figures}

    def _look(self, images: Observer, predictor: nn.Module, unadapted: Unadapted) -> Outputs:
        """Returns the outputs, also of the network that training began from."""
        seen = images.look(predictor, unadapted)
        model = models.Model(predictor, self.classes, images.preprocessing, self.backbone.name)
        self.pretrained = pretrained.find(model, str(self.settings.weights))
        if self.pretrained is not None:
            self.pretrained.network.to(next(predictor.parameters()).device)
        first = self.first.get(images.domain)
        before = pretrained.look_before(images, self.pretrained, first)
        if before is None:
            return seen
        self.before[images.domain] = before
        around = look_around(before.source, before.labels, before.target)
        predicted = None if before.predicted is None else before.predicted.numpy()
        return replace(seen, before=around, first=predicted)

    def write(
        self,
        images: Observer,
        predictor: nn.Module,
        seen: Outputs | None,
        progress: Progress,
        figures: dict[str, Any],
    ) -> dict[str, Any]:
        """Write a target's model, metrics and page; result.json makes it finished.

        Of several targets each has a folder. Returns the result.
        """
        target, classes = images.target.scored, self.classes
        folder = self.folder / self._name(images)
        if seen is not None:
            with self._optional("outputs beside it"):
                outputs.save(folder, seen, classes=classes)
        if seen is not None and self.execution.report:
            with self._optional("evidence for a report"):
                sources = [*self._sources().values()]
                evidence = record.record(
                    self.method, seen, sources=sources, target=target, classes=classes
                )
                record.save(folder / record.NAME, evidence)
        if self.is_judged:
            with self._optional("memory of its domains, to go on from"):
                memory.save(folder, self._remember(images, predictor, seen), classes=classes)
        network = copy.deepcopy(predictor).cpu().eval()
        model = models.Model(network, classes, images.preprocessing, self.backbone.name)
        models.save(folder / "model.safetensors", model)
        runs.keep_samples(folder, target.pixels.read(target.pixels.order[:_SAMPLES]))
        self._write_metrics(folder, progress, self._name(images))
        reference = self.method.reference_for(self.backbone)
        if not self.backbone.normalizes():
            reference = None
        result = {
            "method": name_of(self.settings.method),
            "backbone": self.backbone.name,
            "reference": reference if isinstance(reference, str | None) else repr(reference),
            "source": self.start,
            "target": target.name,
            "seed": self.settings.seed,
            "epochs": len(progress.history),
            "steps": progress.step,
            "seconds": round(self.began + progress.seconds, 3),
            **figures,
        }
        if folder != self.folder:
            config = run_folder.read_config(self.folder / "config.json")
            files.write_json(folder / "config.json", config | {"target": target.name})
        files.write_json(folder / "result.json", result)
        self.reporter.finished(result, folder)
        with self._optional("report"):
            page = _write_page(folder, self.execution)
            if page is not None:
                self.reporter.say(f"report: {page}")
        return result

    def _remember(self, images: Observer, predictor: nn.Module, seen: Outputs | None) -> Memory:
        """Returns what later runs and checks need to know of the domains."""
        model = models.Model(predictor, self.classes, images.preprocessing, self.backbone.name)
        prototypes, digest = self.origin.prototypes if self.origin else None, None
        if self._sources():
            before = self.before.get(images.domain) if self.pretrained else None
            chosen = self.chosen.get(images.domain)
            prototypes = memory.look_back(images, model, before=before, chosen=chosen)
            digest = pretrained.digest(self.pretrained) if before and self.pretrained else None
        elif self.method.trains:
            prototypes = None  # they are of the features from before
        elif self.origin and self.origin.pretrained:
            digest = pretrained.digest(self.origin.pretrained)
        predicted = None if seen is None else torch.from_numpy(seen.target.logits).argmax(1)
        return memory.remember(images, model, prototypes, digest, predicted)

    def conclude(self, results: dict[str, dict[str, Any]], progress: Progress) -> None:
        """Write the result of several targets, which makes the run finished."""
        if len(results) == 1:
            return
        first, *_ = results.values()
        shared = {name: first[name] for name in _SHARED}
        scores = [result["target_accuracy"] for result in results.values()]
        mean = None if None in scores else float(np.mean(scores))
        self._write_metrics(self.folder, progress, "")
        summary = shared | {"target_accuracy": mean, "targets": results}
        summary["target"] = " + ".join(result["target"] for result in results.values())
        files.write_json(self.folder / "result.json", summary)

    def _write_metrics(self, folder: Path, progress: Progress, target: str) -> None:
        """Write a line for each epoch, with the scores of one of several targets or of them all."""
        history = [_of_target(metrics, target) for metrics in progress.history]
        lines = [json.dumps(metrics) for metrics in history]
        files.write_text(folder / "metrics.jsonl", "".join(f"{line}\n" for line in lines))

    @contextmanager
    def _optional(self, what: str) -> Iterator[None]:
        """Let a trained run end well even if something that only describes it fails."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the model is worth more
            self.reporter.warn(f"the run has no {what} ({type(error).__name__}: {error})")

    def _warn_of_collapse(self, logits: Tensor, target: str) -> None:
        warning = accuracy.collapse(logits.argmax(1).numpy(), logits.shape[1])
        if warning:
            self.reporter.warn(f"{target}: {warning}" if target else warning)


def _write_page(folder: Path, execution: Execution) -> Path | None:
    """Write report.html where it is wanted and there is something to show; returns its path."""
    if not (execution.report and (folder / record.NAME).exists()):
        return None
    return report(folder)


def _of_target(metrics: dict[str, Any], target: str) -> dict[str, Any]:
    """Returns an epoch's metrics without the scores of targets but one, if it is named."""
    if not target:
        return metrics
    scores = {name: metrics.get(f"{name}_{target}") for name in _SCORES}
    others = {name: value for name, value in metrics.items() if not name.startswith(_SCORES)}
    return others | {name: value for name, value in scores.items() if value is not None}


def _accuracy(logits: Tensor, labels: Any) -> float:
    """Returns the fraction of images that are predicted as labelled."""
    return float(np.mean(logits.argmax(1).numpy() == labels))
