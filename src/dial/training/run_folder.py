"""A run's folder: begun with its settings, resumed only with the same, repeated from them."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

import torch

import dial
from dial import files, methods
from dial.data.cache_locks import alone
from dial.data.domain import Domain, Domains
from dial.errors import DialError
from dial.files.records import read_json, require_type
from dial.training.run_files import Config
from dial.training.settings import AUTO, BEFORE, Settings

AUTOMATIC = ("image_size", "append_after", "align_logits", "frozen", "method.reference")
"""Settings that can be left to the backbone."""
_REPEATED = ("device", "devices", "precision", "skip_bad")


def describe(
    settings: Settings, domains: Domains, *, origin: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Returns what config.json holds: every setting, the domains, versions, and `more`.

    `origin` is the finished model that stands in the place of sources: its name, its classes, and
    a hash of it.
    """
    sources, targets = domains
    model: Mapping[str, Any] = origin or {}
    return {
        "dial": dial.__version__,
        "source": _names(sources) if sources else model["name"],
        "target": _names(targets),
        "classes": list(sources[0].labels.classes if sources else model["classes"]),
        **({"from": model["digest"]} if model else {}),
        "settings": settings.stored(),
        **more,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


def _names(domains: Sequence[Domain]) -> str | list[str]:
    names = [domain.name for domain in domains]
    return names[0] if len(names) == 1 else names


def holds_run(folder: Path) -> bool:
    """Returns whether a run in the folder has got as far as a checkpoint or a result."""
    return any((folder / name).exists() for name in ("last.ckpt", "result.json"))


def is_finished(folder: Path, config: dict[str, Any], *, resume: bool) -> bool:
    """Returns whether the folder holds this run, finished.

    Raises:
        DialError: the folder holds a run, and `resume` is not given or the run is another.
    """
    if not (holds_run(folder) or (folder / "trials").exists()):
        return False
    if not resume:
        raise already_there(folder)
    check_same(folder, read_config(folder / "config.json"), config)
    return (folder / "result.json").exists()


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Keep a run's folder from other processes, inside the `with`; makes it if need be.

    Raises:
        DialError: another process is at this run, or the folder cannot be made.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.unwritable(folder, error) from error
    with alone(folder) as is_ours:
        if not is_ours:
            raise files.taken(folder)
        try:
            yield
        except BaseException:
            if is_new:
                with suppress(OSError):  # it holds something by now
                    folder.rmdir()
            raise


def already_there(folder: Path) -> DialError:
    """Error: the folder already holds a run and `--resume` was not given."""
    return DialError(
        wanted=f"a new folder for the run, or --resume to resume the one in {folder}",
        got=f"{folder}, which holds a run already",
        fix="pass --resume, or another --out",
    )


def check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to resume a run of other settings, domains or classes, or another search."""
    changes = differences(before, now)
    old, new = (
        {name: c.get(name) for name in ("source", "target", "from", "labelled")}
        | c.get("search", {})
        for c in (before, now)
    )
    pairs = {name: (old.get(name), new.get(name)) for name in old | new}
    changes |= {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if changes or before.get("classes") != now["classes"]:
        raise DialError(
            wanted=f"the settings that the run in {folder} began with",
            got=show_changes(changes) or "other classes",
            fix="resume with the same command, or start anew in another --out",
        )


def show_changes(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Returns changed settings as text: `lr was 0.1, is 0.2`."""
    return "; ".join(
        f"{name.removeprefix('method.')} was {old!r}, is {new!r}"
        for name, (old, new) in changes.items()
    )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the settings that were requested otherwise: full name, value before, value now.

    Args:
        before: what config.json holds, or anything with its `settings` and `automatic`.
        now: the same of the run to compare with.
    """
    old, new = _flat(requested(before)), _flat(requested(now))
    return {name: (old.get(name), new[name]) for name in new if old.get(name) != new[name]}


def requested(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a config.json as they were requested, in the form of `stored()`.

    What was left to the backbone is None again, or 'auto', although config.json has what it
    resolved to. What an older version did not store has the value that held then.
    """
    settings = Settings().stored() | BEFORE | dict(config.get("settings", {}))
    settings["options"] = _complete(settings["method"], settings["options"])
    for name in config.get("automatic", ()):
        if name in settings:
            settings[name] = None
        else:
            settings["options"][name.removeprefix("method.")] = "auto"
    return settings


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings by their full names; those of the method are `method.NAME`."""
    own = {f"method.{name}": value for name, value in settings["options"].items()}
    return {name: value for name, value in settings.items() if name != "options"} | own


def _complete(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all settings of a method: those given, and defaults for the others."""
    if method not in methods.names():  # an object of somebody's own: its settings are all there
        return dict(options)
    defaults = {f.name: f.default for f in fields(methods.kind(method))}
    stored: dict[str, Any] = json.loads(json.dumps(defaults | dict(options), default=repr))
    return stored


def left_to_backbone(settings: Settings) -> list[str]:
    """Returns the full names of the settings that the backbone decides."""
    values = _flat(requested({"settings": settings.stored()}))
    return [name for name in AUTOMATIC if values.get(name, "") in (None, "auto")]


def replay(
    path: str | os.PathLike[str], given: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Settings, dict[str, Any], dict[str, Any]]:
    """Returns the settings, the inputs and the execution that repeat the run of a config.json.

    `given` are inputs that come with it.

    Raises:
        DialError: no such file, a damaged one, or settings that this version does not have.
    """
    config = read_config(Path(path))
    try:
        inputs = {"source": config["source"], "target": config["target"]}
        if "from" in config:
            inputs |= {"source": None, "classes": config["classes"]}
        inputs |= {k: v for k, v in config.get("input", {}).items() if v is not None}
        for name, key in {"from": "model", "labelled": "labelled"}.items():
            if name in config and key not in inputs and not given.get(key):
                raise DialError(
                    wanted=f"the {key} of the run in {path}, which was passed as an object",
                    got="none",
                    fix=f"pass it again: dial.adapt(config=..., {key}=...)",
                )
        execution = {k: v for k, v in config.get("execution", {}).items() if k in _REPEATED}
        return Settings(**(BEFORE | config["settings"])), inputs, execution
    except (KeyError, TypeError) as error:
        raise DialError(
            wanted=f"the config.json of a run in {path}",
            got=f"{type(error).__name__}: {error}",
            fix="name the config.json in a run's folder",
        ) from error


def read_config(path: Path) -> dict[str, Any]:
    """Returns what a run's config.json holds.

    Raises:
        DialError: a file that is not there, or damaged.
    """
    try:
        config: dict[str, Any] = read_json(path, Config)
        _require_options(config.get("settings", {}))
    except (OSError, ValueError) as error:
        raise DialError(
            wanted=f"the settings of a run in {path}",
            got=str(error),
            fix="name the config.json of a run, or start a run anew in another --out",
        ) from error
    return config


def _require_options(settings: Mapping[str, Any]) -> None:
    """Refuse settings of a method that are not of their fields' types, with a ValueError."""
    name, options = settings.get("method"), settings.get("options", {})
    if name not in methods.names():  # an object of somebody's own
        return
    for option, kind in get_type_hints(methods.kind(name)).items():
        if options.get(option) is not None and not (kind is float and options[option] == AUTO):
            require_type(options[option], kind, name=option)
