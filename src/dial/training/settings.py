"""Every setting of a training, written once: a field with its doc string; and the presets.

The command's options, `--set`, `config.json` and `--config` all follow from these fields.
"""

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from dial.errors import DialError

if TYPE_CHECKING:
    from torch import nn

    from dial.backbones import Backbone
    from dial.methods import Method

SCHEDULES = ("steps", "constant", "cosine", "inverse")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
AUTO = "auto"
"""The value of a numeric setting of the method that a search chooses."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. None leaves a value to the backbone."""

    method: "str | Method" = "dial"
    """Adaptation method; see `dial list methods`."""
    backbone: "str | Backbone | nn.Module" = "efficientnet_lite0"
    """Network to adapt; see `dial list backbones`."""
    weights: str = "auto"
    """Initial weights: auto (public ones), none (random), or a file."""
    options: dict[str, Any] = field(default_factory=dict)
    epochs: int = 10
    """Passes over the source."""
    steps: int | None = None
    """Training steps, in place of epochs."""
    most_steps: int | None = None
    """Limit to the steps of so many epochs; one epoch is always trained."""
    batch_size: str = "32+16"
    """Images a step: 32+16 (source + target), or a total shared in proportion to their numbers."""
    image_size: int | None = None
    """Side of the images in pixels; by default the backbone's."""
    merge_sources: bool = False
    """Treat several sources as one domain."""
    append_after: tuple[str, ...] | None = None
    """Layers that get a DA-layer after them, besides the BatchNorms; by default the backbone's."""
    align_logits: bool | None = None
    """Add a DA-layer after the classifier; by default the backbone decides."""
    optimizer: str = "sgd"
    """sgd or adam."""
    lr: float = 1e-3
    """Learning rate of pretrained layers."""
    new_rate: float = 10.0
    """Factor on the learning rate of new layers."""
    bias_rate: float = 1.0
    """Factor on the learning rate of pretrained biases."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 5e-4
    """Weight decay; biases and affine parameters have none."""
    schedule: str = "steps"
    """Learning-rate schedule: steps (a tenth at each milestone), constant, cosine or inverse."""
    milestones: tuple[float, ...] = (0.9,)
    """Milestones of the schedule, as fractions of the training."""
    frozen: tuple[str, ...] | None = None
    """Parts of the network that are not trained; by default the backbone's."""
    holdout: float = 0.1
    """Fraction of the source that is held out of training, to judge the run by."""
    seed: int = 0
    """Seed of everything random."""

    def __post_init__(self) -> None:
        for name in ("milestones", "append_after", "frozen"):  # lists, where they come from JSON
            value = getattr(self, name)
            object.__setattr__(self, name, value if value is None else tuple(value))
        wrong = {
            "epochs": self.epochs < 1,
            "steps": self.steps is not None and self.steps < 1,
            "most_steps": self.most_steps is not None and self.most_steps < 1,
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

    def total_steps(self, per_epoch: int) -> int:
        """Returns the number of training steps, if an epoch has so many.

        >>> Settings(epochs=10, most_steps=300).total_steps(20)
        200
        >>> [Settings(epochs=10, most_steps=300).total_steps(n) for n in (100, 500)]
        [300, 500]
        """
        if self.steps is not None:
            return self.steps
        total = self.epochs * per_epoch
        return total if self.most_steps is None else min(total, max(self.most_steps, per_epoch))

    def rate(self, progress: float) -> float:
        """Returns the factor on the learning rate at a progress from 0 to 1."""
        if self.schedule == "steps":
            return float(0.1 ** sum(progress >= milestone for milestone in self.milestones))
        if self.schedule == "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        if self.schedule == "inverse":
            return float((1 + 10 * progress) ** -0.75)
        return 1.0

    def stored(self) -> dict[str, Any]:
        """Returns the fields as they come back from config.json; objects are there by name."""
        values = dict(vars(self))
        if not isinstance(self.method, str):
            values["options"] = vars(self.method) | self.options
        values |= {"method": name_of(self.method), "backbone": name_of(self.backbone)}
        back: dict[str, Any] = json.loads(json.dumps(values, default=repr))
        return back

    def resolve(self, method: "Method", backbone: "Backbone") -> "Settings":
        """Returns the same settings with what the method and the backbone decided filled in."""
        options = {f.name: getattr(method, f.name) for f in fields(method)}
        if "reference" in options:
            options["reference"] = method.reference_for(backbone)
        return replace(
            self,
            options=options,
            image_size=self.image_size or backbone.image_size,
            append_after=backbone.append_after,
            align_logits=backbone.classifier in backbone.append_after,
            frozen=backbone.frozen,
        )


def name_of(entry: object) -> str:
    """Returns the name of a method or a backbone: as typed, or that of an object."""
    if isinstance(entry, str):
        return entry
    return str(getattr(entry, "name", None) or type(entry).__name__)


class Text(str):
    """A value as typed after `--set`: converted by the type of its field."""

    __slots__ = ()


BEFORE: dict[str, Any] = {"holdout": 0.0}
"""Values of settings that did not exist when older runs began."""

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
            options={"start": "probe", "head": True, "pseudo_labels": 0.3, "refits": 3},
            epochs=5,
            most_steps=300,
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
        options={"entropy": 0.3, "delay": 0.25, "warmup": 0.25},
    ),
}

PHOTOGRAPHS = "efficientnet_lite0"
"""The preset for photographs, and for backbones that have none of their own."""


def preset_for(backbone: object, *, default: str) -> str:
    """Returns the preset to start from: the backbone's own, if one was asked for.

    >>> preset_for(None, default="digits_cnn"), preset_for("timm:resnet18", default="digits_cnn")
    ('digits_cnn', 'efficientnet_lite0')
    """
    if backbone is None:
        return default
    return backbone if isinstance(backbone, str) and backbone in PRESETS else PHOTOGRAPHS


def describe_presets() -> dict[str, str]:
    """Returns what each preset sets, in one line, by its name."""
    plain = vars(Settings())
    lines = {}
    for name, settings in PRESETS.items():
        changes = {key: value for key, value in vars(settings).items() if value != plain[key]}
        changes |= changes.pop("options")
        lines[name] = ", ".join(f"{key} {_shown(value)}" for key, value in changes.items())
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(_shown(part) for part in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def choose(base: str | Settings, options: Mapping[str, Any]) -> Settings:
    """Returns a preset, or other settings, with some of them changed.

    Args:
        base: the preset's name, or the settings to start from.
        options: by name. A name is a field of `Settings`, or else of the method; `training.NAME`
            and `method.NAME` say which. None changes nothing; `Text` is converted.

    Raises:
        DialError: no such preset or setting.

    >>> choose("digits_cnn", {"lr": 0.01, "entropy": 0.1}).options
    {'entropy': 0.1, 'delay': 0.25, 'warmup': 0.25}
    """
    from dial import methods

    start = preset(base) if isinstance(base, str) else base
    values = {key: value for key, value in options.items() if value is not None}
    method = values.get("method", start.method)
    kinds = {"training": _types(Settings), "method": _types(methods.kind(method))}
    values = methods.rename(values, list(kinds["method"]))
    changes: dict[str, dict[str, Any]] = {"training": {}, "method": {}}
    for key, value in values.items():
        prefix, _, name = key.rpartition(".")
        owner = prefix or ("training" if name in kinds["training"] else "method")
        if name not in kinds.get(owner, {}):
            raise _unknown(key, {*kinds["training"], *kinds["method"]}, name_of(method))
        kind = kinds[owner][name]
        changes[owner][name] = convert(name, value, kind) if isinstance(value, Text) else value
    changed = change(start, **changes["training"], options=changes["method"])
    cleared: dict[str, Any] = {k: None for k, v in changes["training"].items() if v is None}
    return replace(changed, **cleared)


def convert(name: str, text: str, kind: str) -> Any:
    """Returns the value that a text stands for, by the type of a field as it is written.

    Raises:
        DialError: the text is no such value.

    >>> convert("lr", "3e-3", "float"), convert("steps", "none", "int | None")
    (0.003, None)
    >>> convert("milestones", "0.5,0.9", "tuple[float, ...]")
    (0.5, 0.9)
    """
    kinds = [part.strip() for part in kind.split("|")]
    if "None" in kinds and text.lower() == "none":
        return None
    base = kinds[0]
    try:
        if base.startswith("tuple["):
            inner = base.removeprefix("tuple[").partition(",")[0]
            return tuple(convert(name, part.strip(), inner) for part in text.split(",") if part)
        if base == "bool":
            return _BOOLEANS[text.lower()]
        if base in ("int", "float") and text != "auto":
            return int(text) if base == "int" else float(text)
    except (KeyError, ValueError):
        raise DialError(
            wanted=f"a value of {name} of the type {kind}", got=repr(text), fix="correct the value"
        ) from None
    return str(text)


def _types(owner: Any) -> dict[str, str]:
    """Returns the types of a dataclass's fields, as they are written."""
    kinds = {f.name: f.type for f in fields(owner) if f.name != "options"}
    return {n: k.__name__ if isinstance(k, type) else str(k) for n, k in kinds.items()}


def _unknown(name: str, names: set[str], method: str) -> DialError:
    close = difflib.get_close_matches(name.rpartition(".")[2], names, n=3)
    return DialError(
        wanted=f"settings of the method {method} or of the training",
        got=repr(name),
        fix=f"did you mean {' or '.join(close or sorted(names))}?",
    )


def preset(name: str, **changes: Any) -> Settings:
    """Returns a preset with some fields changed, as `change` does.

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
    return change(PRESETS[name], **changes)


def change(base: Settings, **changes: Any) -> Settings:
    """Returns settings with some fields changed; what is None stays as it is.

    Epochs replace steps, but not steps that are given with them. Options of the method are added
    to those there are, or replace them where the method is another.
    """
    changes = {key: value for key, value in changes.items() if value is not None}
    if "epochs" in changes:
        base = replace(base, steps=None, most_steps=None)
    same = changes.get("method", base.method) == base.method
    changes["options"] = (base.options if same else {}) | changes.get("options", {})
    return replace(base, **changes)
