"""The work of one process of a run: prepare, train, finish, judge, write."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dial import files
from dial.backbones import Backbone
from dial.console import Reporter
from dial.data.batches import Batches
from dial.data.holdout import hold_out, sample
from dial.data.prepare import PreparedSource, prepare_domains
from dial.data.transforms import Preprocessing
from dial.deployment import memory, pretrained, runs
from dial.deployment import model as models
from dial.deployment.memory import Memory
from dial.deployment.origin import Origin
from dial.deployment.pretrained import Before
from dial.deployment.runs import Run, TargetRuns
from dial.layers import use_domain_if_any
from dial.methods import ByDomain, Candidate, Images, Method, Trainee
from dial.reporting import card, record
from dial.reporting.report import NAME, report
from dial.selection import accuracy, choice, outputs
from dial.selection.neighborhood import look_around
from dial.selection.outputs import SAMPLE, Observer, Outputs, Unadapted
from dial.selection.tuning import Attempt
from dial.training import engine
from dial.training.budget import FITTED, WATCHED
from dial.training.clock import Clock
from dial.training.compilation import Compilation
from dial.training.engine import Progress
from dial.training.job import Job
from dial.training.launch import Execution, in_turn, require_same
from dial.training.settings import Settings, name_of

_SETTLED = 100  # steps after which running statistics are good enough to judge an epoch by
_SAMPLES = 16  # target images that are kept to try exported networks on
_SCORES = "target_accuracy", "target_classes_predicted"  # in an epoch's metrics
_SHARED = "method", "backbone", "reference", "source", "seed", "epochs", "steps", "seconds"


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
    started: float
    """When the user began to wait."""
    config: dict[str, Any]
    """What config.json holds."""


def work(fabric: Any, plan: Plan, folder: Path, attempt: Attempt | None, *, resume: bool) -> None:
    """One process of a run; the first one also finishes, judges and writes."""
    torch.set_rng_state(plan.random_state)
    if fabric.world_size > 1:  # tensors reach spawned processes in memory that they share
        plan = replace(plan, backbone=copy.deepcopy(plan.backbone))
    process = Process(fabric, plan, folder, attempt)
    trainee, progress = process.train(resume=resume)
    if fabric.is_global_zero:
        process.end(trainee, progress)


class Process:
    """The work of one process, in the order of its methods."""

    def __init__(self, fabric: Any, plan: Plan, folder: Path, attempt: Attempt | None) -> None:
        self.fabric, self.folder, self.attempt = fabric, folder, attempt
        self.clock = Clock(plan.started)
        self.config = plan.config
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
            midway=self.method.midway,
        )
        with self.clock.phase("images"):
            self.images = self._prepare(plan.job)
        """For each target, what sends its images and the sources' through a network."""
        self.first: dict[str, Candidate] = {}
        """The predictors that are finished before any training, if the method has any."""
        self.chosen: dict[str, Candidate] = {}
        """The predictors that were chosen among candidates, if there were any."""
        self.before: dict[str, Before] = {}
        """Features by the network that training began from, of the sources and each target."""
        self.pretrained: Backbone | None = None
        """That network, if it is a pretrained one and at hand."""
        # A cell of a benchmark, without a page and a held-out source, is judged by labels alone.
        has_evidence = self.execution.report or self.settings.holdout > 0
        self.is_judged = has_evidence or attempt is not None

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
            cache_limit=self.execution.cache_limit,
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
        self.reporter.begin(self._plan(len(batches)))
        trainee = self.method.prepare(self.backbone)
        trainee.to(self.fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        with self.clock.phase("heads"):
            self._begin(trainee)
        if not self.method.trains:
            return trainee, Progress()
        in_step: Callable[[], AbstractContextManager[None]] = nullcontext
        if self.execution.compile:
            in_step = Compilation(trainee.network, classifier=self.backbone.classifier).step
        with self.reporter:
            progress = engine.fit(
                trainee,
                self.method,
                batches,
                settings=self.settings,
                fabric=self.fabric,
                checkpoint=self.folder / "last.ckpt",
                resume=resume,
                clock=self.clock,
                in_step=in_step,
                on_resume=self.reporter.resumed,
                on_epoch=self._end_epoch,
                on_step=self.reporter.step,
                on_refresh=self._refresh,
            )
        return trainee, progress

    def _plan(self, per_epoch: int) -> str:
        """Returns in words what is going to be done."""
        size, device = self.images[0].preprocessing.size, self.fabric.device.type
        steps = "no training"
        if self.method.trains:
            total = self.settings.total_steps(per_epoch)
            steps = f"{total} steps of {self.settings.batch_size} images"
        return f"{self.backbone.name} at {size} px, {steps}, on {device}"

    def _sources(self) -> Mapping[str, PreparedSource]:
        return self.images[0].sources

    def _begin(self, trainee: Trainee) -> None:
        """Let the method initialize the classifier, and show what is finished already."""
        self.first = self.method.begin(trainee, self._some(self.images))
        if self.first and self.method.trains:
            for images in self.images:
                score = self._score(images, self.first[images.domain])
                self.reporter.first(score, seconds=self.clock.total(), target=self._name(images))

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
            # Midway a method may have another network than the finished one.
            if metrics["step"] >= _SETTLED and not self.method.midway:
                self._warn_of_collapse(logits, name)
        metrics |= {f"target_accuracy{suffix}": score for suffix, score in scores.items()}
        if scores and "" not in scores:
            metrics["target_accuracy"] = float(np.mean([*scores.values()]))
        self.reporter.epoch(metrics)
        self._keep_config()
        if self.attempt is not None and self.attempt.judge is not None:
            look = partial(self.images[0].midway, trainee.network)
            self.attempt.judge(metrics["epoch"], look)

    def end(self, trainee: Trainee, progress: Progress) -> None:
        """Finish, judge and write, for each target."""
        phase, results = self.clock.phase, {}
        with phase("evidence"):
            unadapted = self.unadapted(trainee)
        for images in self.images:
            with phase("candidates"):
                predictor, chosen = self.finish(trainee, images)
            with phase("evidence"):
                outputs, figures = self.judge(images, predictor, unadapted)
            with phase("files"):
                result = self.write(images, predictor, outputs, progress, figures | chosen)
            results[images.domain] = result
        self.conclude(results, progress)

    def unadapted(self, trainee: Trainee) -> Unadapted:
        """Returns the network without adaptation, if the run is judged and the method has one."""
        sources = self._sources()
        if not sources:
            return self._as_it_came(trainee)
        most, read = SAMPLE // len(sources), self.images[0].batches
        networks: list[nn.Module | None] = []
        if self.is_judged:
            with _optional(self.reporter, "network without adaptation"):
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
            with _optional(self.reporter, "outputs to judge it by, and no report"):
                seen = self._look(images, predictor, unadapted)
                figures |= accuracy.judge(seen, classes=self.classes)
        if seen is None:
            logits = models.predict(predictor, images.batches(target))
            self._warn_of_collapse(logits, self._name(images))
        else:
            logits = torch.from_numpy(seen.target.logits)
        logits = logits[np.argsort(target.pixels.order)]  # row by row, as the labels are
        score = None if target.labels is None else _accuracy(logits, target.labels.indices)
        return seen, {"target_accuracy": score, "target_images": len(logits), **figures}

    def _look(self, images: Observer, predictor: nn.Module, unadapted: Unadapted) -> Outputs:
        """Returns the outputs, also of the network that training began from."""
        seen = images.look(predictor, unadapted)
        if not images.sources:
            return seen
        if self.pretrained is None:  # the same for all targets
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
        self._keep_config()
        for name in (outputs.NAME, record.NAME, memory.NAME):  # of a killed run, before this one
            (folder / name).unlink(missing_ok=True)
        if seen is not None:
            with _optional(self.reporter, "outputs beside it"):
                outputs.save(folder, seen, classes=classes)
        if seen is not None and self.execution.report:
            with _optional(self.reporter, "evidence for a report"):
                sources = [*self._sources().values()]
                evidence = record.record(
                    self.method, seen, sources=sources, target=target, classes=classes
                )
                record.save(folder / record.NAME, evidence)
        if self.is_judged:
            with _optional(self.reporter, "memory of its domains, to go on from"):
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
            "seconds": 0.0,  # until it is written
            "source_images": self._count_sources(images),
            **figures,
        }
        if folder != self.folder:
            files.write_json(folder / "config.json", self.config | {"target": target.name})
        result = self._write_time(folder, result)
        self.reporter.finished(result, folder)
        with self.clock.phase("report"):
            _try_page(folder, self.execution, self.reporter)
        _try_card(folder, self.reporter)
        with _optional(self.reporter, "time of its report", can_resume=False):
            result |= self._write_time(folder, result)
        return result

    def _count_sources(self, images: Observer) -> int | None:
        """Returns how many images the sources have, with what is held out; None without any."""
        parts = [*images.sources.values(), *images.held_out.values()]
        return sum(len(part.pixels) for part in parts) if parts else None

    def _write_time(self, folder: Path, result: dict[str, Any]) -> dict[str, Any]:
        """Write the result with what was waited for it until now. Returns it."""
        spent = {name: round(seconds, 3) for name, seconds in self.clock.spent().items()}
        result = result | {"seconds": round(self.clock.total(), 3)}
        timing = {"seconds": result["seconds"], "phases": spent}
        files.write_json(folder / "timing.json", timing)
        files.write_json(folder / "result.json", result)
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
        self._write_time(self.folder, summary)

    def _write_metrics(self, folder: Path, progress: Progress, target: str) -> None:
        """Write a line for each epoch, with the scores of one of several targets or of them all."""
        history = [_of_target(metrics, target) for metrics in progress.history]
        lines = [json.dumps(metrics) for metrics in history]
        files.write_text(folder / "metrics.jsonl", "".join(f"{line}\n" for line in lines))

    def _keep_config(self) -> None:
        """Write config.json again if the run's folder was removed, or moved away, meanwhile."""
        path = self.folder / "config.json"
        if self.fabric.is_global_zero and not path.exists():
            files.write_json(path, self.config)
            self.reporter.warn(f"{self.folder} was removed; what comes now is in a new one")

    def _warn_of_collapse(self, logits: Tensor, target: str) -> None:
        warning = accuracy.collapse(logits.argmax(1).numpy(), logits.shape[1])
        if warning:
            text = f"{target}: {warning}" if target else warning
            self.reporter.warn(text, kind=f"collapse {target}")


@contextmanager
def _optional(reporter: Reporter, what: str, *, can_resume: bool = True) -> Iterator[None]:
    """Let a trained run end well even if something that only describes it fails.

    A disk that is full is another matter: it can be emptied, and the run resumed.
    """
    try:
        yield
    except Exception as error:
        if can_resume and isinstance(error, files.UnwritableError):
            raise
        reporter.warn(f"the run has no {what} ({type(error).__name__}: {error})")


def complete(found: Run | TargetRuns, execution: Execution) -> None:
    """Write the pages of a finished run that was killed before it came to them, and tidy up."""
    reporter = Reporter(quiet=execution.quiet, title="")
    files.remove_leftovers(found.folder)
    for run in found.values() if isinstance(found, TargetRuns) else [found]:
        files.remove_leftovers(run.folder)
        if not (run.folder / NAME).exists():
            _try_page(run.folder, execution, reporter)
        if not (run.folder / card.NAME).exists():
            _try_card(run.folder, reporter)


def _try_page(folder: Path, execution: Execution, reporter: Reporter) -> None:
    with _optional(reporter, "report", can_resume=False):
        page = write_page(folder, execution)
        if page is not None:
            reporter.say(f"report: {page}")


def _try_card(folder: Path, reporter: Reporter) -> None:
    with _optional(reporter, "model card", can_resume=False):
        card.write(folder)


def write_page(folder: Path, execution: Execution) -> Path | None:
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
