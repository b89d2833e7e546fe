"""From domains to finished predictors: settle what is to be done, and have it done."""

import copy
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import torch

from dial import backbones, files, methods
from dial.allocator import keep_memory
from dial.backbones import Backbone
from dial.console import Reporter
from dial.data.domain import first_files, short_names
from dial.deployment import runs
from dial.deployment.origin import Origin, Start, open_origin
from dial.deployment.runs import Run, TargetRuns
from dial.errors import DialError
from dial.pipeline.process import Plan, complete, work, write_page
from dial.selection import tuning
from dial.selection.tuning import Attempt
from dial.selection.validators import Validator
from dial.training import budget as budgets
from dial.training import run_folder, torchrun
from dial.training.clock import waited_since
from dial.training.cluster import connected
from dial.training.job import Job, Place, listed, open_job
from dial.training.launch import Execution, launch, lead
from dial.training.settings import (
    PHOTOGRAPHS,
    Settings,
    choose,
    convert,
    name_of,
    preset_for,
)


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
    started = waited_since()
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
    choices["started"] = started
    with keep_memory():
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
    started: float,
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
    _check_ray(execution.ray, searches=search is not None)
    if search is None:
        run = train(settings, out, resume=resume, started=started)
        return _as_asked(run, job, is_list=is_list)
    if origin is not None:
        _refuse({"tune": search.field})
    if len(job.targets) > 1:
        raise DialError(
            wanted=f"one target to choose {search.field} for",
            got=f"{len(job.targets)} targets",
            fix="tune on one of them, and pass the value that it chooses",
        )
    with connected(execution.ray, device=execution.device, devices=execution.devices) as cluster:
        if cluster is not None:
            cluster.require_shared(out, *first_files([*job.sources, *job.targets]))
            train = partial(_run, replace(job, execution=replace(execution, ray=None, quiet=True)))
        tuning.tune(
            search,
            out,
            job.domains,
            train=train,
            resume=resume,
            prune=execution.devices == 1,
            quiet=execution.quiet,
            about=_about(job, origin),
            cluster=cluster,
            started=started,
        )
    write_page(out, execution)
    return _as_asked(runs.load(out), job, is_list=is_list)


def _as_asked(found: Run | TargetRuns, job: Job, *, is_list: bool) -> Run | TargetRuns:
    """Returns a mapping if targets were given as a list, also as a list of one."""
    if isinstance(found, TargetRuns) or not is_list:
        return found
    (name,) = short_names(job.targets)
    return TargetRuns(found.folder, {name: found}, found.result, found.history)


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


def _check_ray(address: str | None, *, searches: bool) -> None:
    """Refuse a cluster for what is one run, or for processes of torchrun."""
    if address is not None and not searches:
        raise DialError(
            wanted="a search, whose trials Ray runs: --entropy auto, or --tune NAME",
            got="--ray for a single run",
            fix="leave --ray out; torchrun shares one run among machines",
        )
    if address is not None and torchrun.is_shared():
        raise DialError(
            wanted="Ray or torchrun",
            got="--ray under torchrun",
            fix="leave one of them out",
        )


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
    started: float | None = None,
) -> Run | TargetRuns:
    """One run, whose folder no other process writes to meanwhile."""
    with run_folder.claim(folder):
        return _run_alone(
            job,
            settings,
            folder,
            resume=resume,
            attempt=attempt,
            origin=origin,
            started=time.perf_counter() if started is None else started,
        )


def _run_alone(
    job: Job,
    settings: Settings,
    folder: Path,
    *,
    resume: bool,
    attempt: Attempt | None,
    origin: Origin | None,
    started: float,
) -> Run | TargetRuns:
    """One run: its folder is begun, one process or several do the work, the result is loaded."""
    method = methods.create(settings.method, settings.options)  # mistakes show before reading
    network = None if isinstance(settings.backbone, str) else settings.backbone
    about = _about(job, origin)
    config = run_folder.describe(settings, job.domains, **about)
    if run_folder.is_finished(folder, config, resume=resume):
        found = runs.load_all(folder, backbone=network)
        if attempt is None:
            say = Reporter(quiet=job.execution.quiet, title="").say
            say(f"{folder}: this run is finished already")
        complete(found, job.execution)
        return found
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
    else:
        config = run_folder.read_config(folder / "config.json")
    plan = Plan(job, origin, settings, method, backbone, torch.get_rng_state(), started, config)
    launch(work, plan, folder, attempt, resume=resume, execution=job.execution)
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
