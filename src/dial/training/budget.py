"""`--minutes`: the best plan that fits into the time, from how fast this machine is.

A plan is a method, a backbone, an image size and a number of steps. The machine's speed is
measured on a few images; what a plan takes follows from how often each image passes the network.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from dial import backbones, methods
from dial.backbones import Backbone
from dial.console import duration
from dial.data.batches import Batch, parse_batch_size
from dial.data.domain import Domains
from dial.data.transforms import Preprocessing
from dial.errors import DialError
from dial.training.settings import Settings, change, name_of, preset

FITTED = 5000, 10000
"""Images of source and target that classifiers are fitted to, at most."""
WATCHED = 500
"""Target images that an epoch is scored on."""
_FEWEST = 100  # training steps, below which there is no point in training
_MEASURED = 16  # images to measure with
_JUDGED = 2000  # source images, and those for statistics, that pass a network at the end
_FIXED = 20.0  # seconds for weights, fitting heads, plots
_PLANS: tuple[dict[str, Any], ...] = (
    {"method": "frozen", "image_size": 128},
    {"method": "frozen", "image_size": 160},
    {"method": "frozen", "image_size": 224},
    {"image_size": 160},
    {"image_size": 224},
    {"image_size": 260, "backbone": "efficientnet_lite2"},
)
"""From the cheapest to the best. What a plan does not name is as it is without a limit."""


@dataclass(frozen=True)
class Speed:
    """Seconds that an image takes: to be decoded, to pass a network, to be trained with."""

    decode: float
    evaluate: float
    train: float


@dataclass(frozen=True)
class Budget:
    """Settings, and the seconds that a run with them takes."""

    settings: Settings
    seconds: float

    def __str__(self) -> str:
        settings = self.settings
        work = "no training" if not _trains(settings) else f"{settings.steps} training steps"
        what = f"{name_of(settings.backbone)} at {settings.image_size} pixels, {work}"
        return f"{what}: about {duration(self.seconds)}"


def fit(
    settings: Settings,
    given: Mapping[str, Any],
    domains: Domains,
    *,
    minutes: float,
    measure: Callable[[Settings, Domains], Speed] | None = None,
) -> Budget:
    """Returns the best plan that fits into the time, or the cheapest one if none does.

    Args:
        settings: as they are without a limit.
        given: the options that the user chose; no plan changes them.
        domains: sources and targets.
        minutes: for everything, from decoding to the report.
        measure: returns the speed with some settings; by default this machine's.
    """
    if not minutes > 0:
        raise DialError(wanted="a number of minutes above 0", got=f"{minutes:g}", fix="--minutes 5")
    measure = measure or measure_speed
    chosen = {name for name, value in given.items() if value is not None}
    budgets: list[Budget] = []
    for changes in _PLANS:
        if chosen & {"steps", "epochs"} and changes.get("method") == "frozen":
            continue
        candidate = _change(settings, {k: v for k, v in changes.items() if k not in chosen})
        budget = _budget(candidate, domains, measure(candidate, domains), seconds=60 * minutes)
        if budgets and budget.seconds > 60 * minutes:
            break
        budgets.append(budget)
    return budgets[-1]


def _change(settings: Settings, changes: dict[str, Any]) -> Settings:
    """Returns settings with a plan's changes; another backbone brings its preset's options."""
    backbone = changes.get("backbone")
    if backbone is None:
        return change(settings, **changes)
    options = preset(backbone).options if settings.method == "dial" else {}
    return change(settings, **changes, options=options | settings.options)


def _trains(settings: Settings) -> bool:
    return methods.kind(settings.method).trains


def _budget(settings: Settings, domains: Domains, speed: Speed, *, seconds: float) -> Budget:
    """Returns settings with as many steps as fit, at least 100 and at most the usual number."""
    source, target = (sum(len(domain.images) for domain in side) for side in domains)
    each = [len(domain.images) for domain in domains[1]]
    kept = min(source, FITTED[0]) + sum(min(images, FITTED[1]) for images in each)
    spent = _FIXED + (source + target) * speed.decode
    if not _trains(settings):
        return Budget(settings, spent + (kept + target + _JUDGED) * speed.evaluate)
    spent += (2 * kept + 4 * target + _JUDGED) * speed.evaluate
    sizes = parse_batch_size(settings.batch_size, source=source, target=target, targets=len(each))
    per_epoch = max(1, int(source * (1 - settings.holdout)) // sizes.source)
    trained = sizes.source + len(each) * sizes.target
    watched = sum(min(images, WATCHED) for images in each)
    step = trained * speed.train + watched * speed.evaluate / per_epoch
    usual = settings.total_steps(per_epoch)
    steps = min(max(int((seconds - spent) / step), _FEWEST), usual)
    return Budget(replace(settings, steps=steps), spent + steps * step)


def measure_speed(settings: Settings, domains: Domains) -> Speed:
    """Measure on this machine, with random weights and the first images of the source."""
    source = domains[0][0]
    backbone = backbones.create(
        settings.backbone,
        num_classes=len(source.labels.classes),
        weights="none",
        image_size=settings.image_size,
        append_after=settings.append_after,
        align_logits=settings.align_logits,
        frozen=settings.frozen,
    )
    preprocessing = Preprocessing.for_network(backbone, settings.image_size)
    some = source.images.take(range(min(_MEASURED, len(source.images))))
    size, channels = preprocessing.resize, preprocessing.channels
    decode = _time(lambda: list(some.decode(resize=size, channels=channels, title="", quiet=True)))
    images = torch.randn(_MEASURED, channels, preprocessing.size, preprocessing.size)
    images = images.to(memory_format=torch.channels_last)
    evaluate, train = _time_network(backbone, settings, images)
    return Speed(decode / len(some), evaluate / _MEASURED, train / _MEASURED)


def _time_network(
    backbone: Backbone, settings: Settings, images: torch.Tensor
) -> tuple[float, float]:
    """Returns the seconds to pass images, and to train with them as a batch of both domains."""
    method = methods.create(settings.method, settings.options)
    trainee = method.prepare(backbone).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    backbone.freeze()
    half = len(images) // 2
    labels = torch.zeros(half, dtype=torch.int64)
    batch = Batch(images[:half], labels, images[half:], torch.arange(half))

    def step() -> None:
        for terms in method.terms(trainee.train(), batch, 0.5):
            torch.stack([*terms.values()]).sum().backward()

    def evaluate() -> None:
        with torch.no_grad():
            trainee.eval()(images)

    return _time(evaluate), _time(step) if method.trains else 0.0


def _time(work: Callable[[], Any]) -> float:
    """Returns the least seconds of two repetitions, after one to warm up."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])
