"""Every setting of a run, with its default, and presets for what is usual."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from dial.errors import DialError

SCHEDULES = ("steps", "constant", "cosine", "inverse")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. What is None is left to the method, the backbone or the data."""

    method: str = "dial"
    """Adaptation method."""
    backbone: str = "efficientnet_lite0"
    """Network to adapt."""
    weights: str = "auto"
    """Weights to start from: auto (public ones), none (random), or a file."""
    options: dict[str, Any] = field(default_factory=dict)
    """Settings of the method: reference, entropy, sparsity, ..."""
    epochs: int = 10
    """Passes over the source."""
    steps: int | None = None
    """Training steps, in place of epochs."""
    batch_size: str = "32+16"
    """Source + target images a step, or one total shared in proportion to the domains' sizes."""
    image_size: int | None = None
    """Side of the images in pixels; the backbone's own by default."""
    align_logits: bool | None = None
    """Whether a DA-layer comes behind the classifier too; the backbone's own choice by default."""
    optimizer: str = "sgd"
    """sgd or adam."""
    lr: float = 1e-3
    """Learning rate of fine-tuned layers."""
    new_rate: float = 10.0
    """Factor on the rate of new layers."""
    bias_rate: float = 1.0
    """Factor on the rate of fine-tuned biases."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 5e-4
    """Weight decay; none on biases and affine parameters."""
    schedule: str = "steps"
    """Course of the rate: steps (a tenth at each milestone), constant, cosine or inverse."""
    milestones: tuple[float, ...] = (0.9,)
    """Where in the training the rate is divided by ten, as fractions of it."""
    frozen: tuple[str, ...] | None = None
    """Parts of the network that are not learnt; the backbone's own by default."""
    holdout: float = 0.1
    """Share of the source that is kept out of training, to judge by."""
    seed: int = 0
    """Decides everything random."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        wrong = {
            "epochs": self.epochs < 1,
            "steps": self.steps is not None and self.steps < 1,
            "lr": not (0 < self.lr < math.inf),
            "momentum": not 0 <= self.momentum < 1,
            "weight_decay": not 0 <= self.weight_decay < math.inf,
            "schedule": self.schedule not in SCHEDULES,
            "optimizer": self.optimizer not in ("sgd", "adam"),
            "holdout": not 0 <= self.holdout < 1,
            "seed": self.seed < 0,
            "image_size": self.image_size is not None and self.image_size < 1,
        }
        bad = [name for name, is_wrong in wrong.items() if is_wrong]
        if bad:
            raise DialError(
                wanted="settings that make sense",
                got=", ".join(f"{name}={getattr(self, name)!r}" for name in bad),
                fix=f"epochs and steps of 1 or more, a positive lr, a schedule of {SCHEDULES}, "
                "the optimizer sgd or adam, a holdout from 0 to less than 1, a seed of 0 or more",
            )

    def rate(self, progress: float) -> float:
        """The factor on the learning rate at a progress from 0 to 1."""
        if self.schedule == "steps":
            return float(0.1 ** sum(progress >= milestone for milestone in self.milestones))
        if self.schedule == "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        if self.schedule == "inverse":
            return float((1 + 10 * progress) ** -0.75)
        return 1.0

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)

    def stored(self) -> dict[str, Any]:
        """The fields as they come back from config.json."""
        back: dict[str, Any] = json.loads(json.dumps(self.to_dict(), default=repr))
        return back


BEFORE: dict[str, Any] = {"holdout": 0.0}
"""What held for runs that were begun before these settings existed."""

PRESETS: dict[str, Settings] = {
    "paper-alexnet": Settings(
        backbone="alexnet",
        options={"reference": "normal", "entropy": 0.1},
        epochs=60,
        batch_size="256",
        image_size=227,
        bias_rate=2.0,
        milestones=(0.9,),
    ),
    "paper-inception-bn": Settings(
        backbone="inception_bn",
        options={"reference": "normal", "entropy": 0.1},
        epochs=20,
        batch_size="32+16",
        image_size=224,
        bias_rate=2.0,
        milestones=(1 / 3, 2 / 3),
    ),
    **{
        f"efficientnet_lite{size}": Settings(
            backbone=f"efficientnet_lite{size}",
            options={"centroids": True, "start": "probe"},
            epochs=10,
            lr=3e-3,
            batch_size="24+24",
            image_size=160,
        )
        for size in (0, 1, 2)
    },
    "digits_cnn": Settings(
        backbone="digits_cnn",
        steps=800,
        batch_size="64+64",
        optimizer="adam",
        lr=1e-3,
        weight_decay=0.0,
        options={"entropy": 0.3, "warmup": 0.5},
    ),
}


PHOTOGRAPHS = "efficientnet_lite0"
"""The preset for networks that have none of their own."""


def preset_for(backbone: str | None, *, default: str) -> str:
    """The preset to start from: the backbone's own, if one is asked for.

    >>> preset_for(None, default="digits_cnn"), preset_for("timm:resnet18", default="digits_cnn")
    ('digits_cnn', 'efficientnet_lite0')
    """
    if backbone is None:
        return default
    return backbone if backbone in PRESETS else PHOTOGRAPHS


def choose(name: str, options: Mapping[str, Any]) -> Settings:
    """A preset with options given, be they fields of `Settings` or settings of the method.

    Raises:
        DialError: no such preset.

    >>> choose("digits_cnn", {"lr": 0.01, "entropy": 0.1}).options
    {'entropy': 0.1, 'warmup': 0.5}
    """
    known = {f.name for f in fields(Settings)} - {"options"}
    given = {key: value for key, value in options.items() if key in known}
    own = {key: v for key, v in options.items() if key not in known and v is not None}
    return preset(name, **given, options=own)


def preset(name: str, **changes: Any) -> Settings:
    """A preset with some fields changed; what is None stays as the preset has it.

    Epochs take the place of the preset's steps, but not of steps that are given with them.

    Raises:
        DialError: no such preset.

    >>> preset("digits_cnn").steps, preset("digits_cnn", epochs=2).steps
    (800, None)
    """
    if name not in PRESETS:
        raise DialError(
            wanted=f"one of the presets {', '.join(PRESETS)}",
            got=repr(name),
            fix="choose one of those",
        )
    given = {key: value for key, value in changes.items() if value is not None}
    base = PRESETS[name]
    if "epochs" in given:
        base = replace(base, steps=None)
    if "options" in given:  # those of the preset hold for its own method only
        same = given.get("method", base.method) == base.method
        given["options"] = (base.options if same else {}) | given["options"]
    elif given.get("method", base.method) != base.method:
        given["options"] = {}
    return replace(base, **given)
