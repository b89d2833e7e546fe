"""A run's folder: begun with its settings, resumed only with the same, its records read back."""

import json
import sys
from pathlib import Path
from typing import Any

import torch

import dial
from dial import files
from dial.data.domain import Domain, require_labels
from dial.errors import DialError
from dial.training.settings import BEFORE, Settings


def begin(folder: Path, chosen: Settings, domains: tuple[Domain, Domain], *, resume: bool) -> bool:
    """Begin the run's folder, or check that it holds this run; whether the run is finished."""
    config = describe(chosen, domains)
    if not (came_to_something(folder) or (folder / "trials").exists()):
        files.write_json(folder / "config.json", config)
        return False
    if not resume:
        raise taken(folder)
    check_same(folder, read_config(folder / "config.json"), config)
    return (folder / "result.json").exists()


def came_to_something(folder: Path) -> bool:
    """Whether there is anything of a run that was begun in a folder."""
    return any((folder / name).exists() for name in ("last.ckpt", "result.json"))


def taken(folder: Path) -> DialError:
    """The error about a folder that is not to be gone on with, and holds a run."""
    return DialError(
        wanted=f"a new folder for the run, or --resume to go on with the one in {folder}",
        got=f"{folder}, which holds a run already",
        fix="pass --resume, or another --out",
    )


def describe(chosen: Settings, domains: tuple[Domain, Domain]) -> dict[str, Any]:
    """What config.json holds: every setting, the domains, and versions."""
    return {
        "dial": dial.__version__,
        "source": domains[0].name,
        "target": domains[1].name,
        "classes": list(require_labels(domains[0]).classes),
        "settings": chosen.stored(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


def check_same(folder: Path, begun: dict[str, Any], config: dict[str, Any]) -> None:
    """Refuse to go on with a run of other settings, domains or classes, or another search."""
    begun["settings"] = BEFORE | begun.get("settings", {})
    same = ("source", "target", "classes", "settings", "search")
    if any(begun.get(key) != config.get(key) for key in same):
        before = begun["settings"] | begun.get("search", {})
        before |= {key: begun.get(key) for key in ("source", "target")}
        now = config["settings"] | config.get("search", {})
        now |= {key: config[key] for key in ("source", "target")}
        changed = [
            f"{k} was {before.get(k)!r}, is {v!r}" for k, v in now.items() if before.get(k) != v
        ]
        raise DialError(
            wanted=f"the settings that the run in {folder} began with",
            got="; ".join(changed) or "other classes, or a search among settings",
            fix="resume with the same command, or start anew in another --out",
        )


def read_config(path: Path) -> dict[str, Any]:
    """The settings that a run began with.

    Raises:
        DialError: a file that is not there, or damaged.
    """
    try:
        return json.loads(path.read_text())  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise DialError(
            wanted=f"the settings of a run in {path}",
            got=str(error),
            fix="start a run anew in another --out",
        ) from error


def read_records(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The result and the metrics of a finished run, without its model; raises as `load` does."""
    try:
        result = json.loads((folder / "result.json").read_text())
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        history = [json.loads(line) for line in lines]
    except OSError as error:
        begun = (folder / "config.json").exists()
        raise DialError(
            wanted=f"a finished run in {folder}",
            got="one that is not finished" if begun else "no run there",
            fix="finish it with the command that began it and --resume"
            if begun
            else "check the path",
        ) from error
    except ValueError as error:
        raise DialError(
            wanted=f"a sound run in {folder}",
            got=f"a damaged result.json or metrics.jsonl ({error})",
            fix="remove result.json, and finish the run again with its command and --resume",
        ) from error
    return result, history
