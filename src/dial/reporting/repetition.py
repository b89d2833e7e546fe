"""The command, or the Python call, that makes a run again from its settings."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dial.training.settings import BEFORE, PRESETS, choose

COMMAND = (
    *("method", "backbone", "weights", "epochs", "steps", "batch_size", "image_size"),
    *("align_logits", "optimizer", "lr", "schedule", "holdout", "seed"),
)
"""Settings that the command has options for; the others come from a preset."""
METHOD = (
    *("reference", "entropy", "warmup", "sparsity", "statistics", "passes", "centroids"),
    "start",
)
"""Settings of methods that the command has options for."""


def repeat_command(config: dict[str, Any], extra: dict[str, Any], *, out: str) -> str:
    """What to type to make a run again.

    Args:
        config: what the run's config.json holds.
        extra: `data`, the folder of known data sets, if any, and `unlabelled`.
        out: the new run's folder.

    A call from Python is given where the command has no option for a setting.
    """
    settings: dict[str, Any] = BEFORE | config["settings"]
    config = config | {"settings": settings}
    own = settings["options"]

    def agrees(preset: str, given: dict[str, Any]) -> bool:
        return choose(preset, given | own).stored() == settings

    found = shortest(settings, COMMAND, agrees)
    if found is None or not set(own) <= set(METHOD):
        return _call(config, extra, out=out)
    preset, given = found
    words = ["dial", "adapt", config["source"], config["target"], "--out", out]
    words += ["--preset", preset]
    for name in COMMAND:
        if name in given or name in ("method", "seed"):
            words += option(name, settings[name])
    base = PRESETS[preset]
    known = base.options if settings["method"] == base.method else {}
    for name, value in own.items():
        if name not in known or known[name] != value:
            words += option(name, value)
    if extra.get("data"):
        words += ["--data", str(extra["data"])]
    if extra.get("unlabelled"):
        words.append("--unlabelled")
    return shlex.join(words)


def shortest(
    settings: Mapping[str, Any],
    typed: Sequence[str],
    agrees: Callable[[str, dict[str, Any]], bool],
) -> tuple[str, dict[str, Any]] | None:
    """A preset and the settings to type beside it, as few as possible; None if no preset will do.

    Args:
        settings: those that are wanted.
        typed: names of those that there are options for.
        agrees: whether a preset with what is typed gives all that is wanted.
    """
    found = []
    for name, preset in PRESETS.items():
        given = {
            key: settings[key]
            for key in typed
            if settings[key] is not None and settings[key] != getattr(preset, key)
        }
        if agrees(name, given):
            found.append((name, given))
    return min(found, key=lambda pair: len(pair[1]), default=None)


def in_force(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that count, to be shown: no epochs beside steps, and nothing without a value.

    >>> in_force({"epochs": 10, "steps": 300, "image_size": None})
    {'steps': 300}
    """
    hidden = "epochs" if settings["steps"] is not None else None
    return {k: v for k, v in settings.items() if v is not None and k != hidden}


def option(name: str, value: Any) -> list[str]:
    """How a setting is typed.

    >>> option("image_size", 128), option("align_logits", False)
    (['--image-size', '128'], ['--no-align-logits'])
    """
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


def _call(config: dict[str, Any], extra: dict[str, Any], *, out: str) -> str:
    settings = {k: v for k, v in config["settings"].items() if k != "options" and v is not None}
    given = settings | config["settings"]["options"]
    given |= {key: value for key, value in extra.items() if value}
    lines = [f"    {key}={value!r}," for key, value in given.items()]
    first = f"dial.adapt(\n    {config['source']!r},\n    {config['target']!r},\n    out={out!r},\n"
    return "import dial\n\n" + first + "\n".join(lines) + "\n)"
