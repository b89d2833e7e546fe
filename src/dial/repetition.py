"""The command, or the Python call, that makes a run again from its settings."""

import shlex
from dataclasses import asdict, fields
from typing import Any

from dial.settings import BEFORE, PRESETS, Settings

COMMAND = (
    *("method", "backbone", "weights", "epochs", "steps", "batch_size", "image_size"),
    *("align_logits", "optimizer", "lr", "schedule", "holdout", "seed"),
)
"""Settings that the command has options for; the others come from a preset."""
METHOD = ("reference", "entropy", "warmup", "sparsity", "statistics", "passes", "centroids")
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
    preset = _preset(settings)
    if preset is None or not set(settings["options"]) <= set(METHOD):
        return _call(config, extra, out=out)
    base = PRESETS[preset]
    words = ["dial", "adapt", config["source"], config["target"], "--out", out]
    words += ["--preset", preset]
    for name in COMMAND:
        value = settings[name]
        if value is not None and (value != getattr(base, name) or name in ("method", "seed")):
            words += _option(name, value)
    known = base.options if settings["method"] == base.method else {}
    for name, value in settings["options"].items():
        if name not in known or known[name] != value:
            words += _option(name, value)
    if extra.get("data"):
        words += ["--data", str(extra["data"])]
    if extra.get("unlabelled"):
        words.append("--unlabelled")
    return shlex.join(words)


def _preset(settings: dict[str, Any]) -> str | None:
    """A preset that agrees in all that cannot be typed, and best in all the rest."""
    hidden = [f.name for f in fields(Settings) if f.name not in (*COMMAND, "options")]
    plain = {name: Settings(**asdict(preset)) for name, preset in PRESETS.items()}
    agreeing = {
        name: sum(getattr(preset, key) == settings[key] for key in COMMAND)
        for name, preset in plain.items()
        if all(_plain(getattr(preset, key)) == settings[key] for key in hidden)
        and not any(
            # An option left out is the preset's, and cannot be taken back.
            settings[key] is None and getattr(preset, key) is not None
            for key in COMMAND
        )
        and (preset.method != settings["method"] or set(preset.options) <= set(settings["options"]))
    }
    return max(agreeing, key=lambda name: agreeing[name]) if agreeing else None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _option(name: str, value: Any) -> list[str]:
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
