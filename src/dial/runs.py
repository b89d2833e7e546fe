"""A run's folder: begun with its settings, resumed only with the same, read back when finished."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import dial
from dial import files, models
from dial.data.domain import Domain, require_labels
from dial.errors import DialError
from dial.settings import Settings


@dataclass(frozen=True)
class Run:
    """A finished run: the predictor, its classes, and what was measured."""

    folder: Path
    model: models.Model
    result: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def network(self) -> nn.Module:
        """The target's predictor, a plain network in eval mode."""
        return self.model.network


def begin(
    folder: Path, chosen: Settings, domains: tuple[Domain, Domain], *, resume: bool
) -> Run | None:
    """Begin the run's folder, or check that it holds this run; the run itself if it is finished."""
    path = folder / "config.json"
    config = {
        "dial": dial.__version__,
        "source": domains[0].name,
        "target": domains[1].name,
        "classes": list(require_labels(domains[0]).classes),
        "settings": json.loads(json.dumps(chosen.to_dict(), default=repr)),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }
    if not path.exists():
        files.write_json(path, config)
        return None
    if not resume:
        raise DialError(
            wanted=f"a new folder for the run, or --resume to go on with the one in {folder}",
            got=f"{folder}, which holds a run already",
            fix="pass --resume, or another --out",
        )
    begun = json.loads(path.read_text())
    same = ("source", "target", "classes", "settings")
    if any(begun.get(key) != config[key] for key in same):
        before = begun.get("settings", {}) | {k: begun.get(k) for k in ("source", "target")}
        now = config["settings"] | {"source": domains[0].name, "target": domains[1].name}
        changed = [
            f"{k} was {before.get(k)!r}, is {v!r}" for k, v in now.items() if before.get(k) != v
        ]
        raise DialError(
            wanted=f"the settings that the run in {folder} began with",
            got="; ".join(changed) or "other classes",
            fix="resume with the same command, or start anew in another --out",
        )
    return load(folder) if (folder / "result.json").exists() else None


def load(folder: str | os.PathLike[str]) -> Run:
    """A finished run from its folder.

    Raises:
        DialError: no run there, or one that is not finished.
    """
    folder = Path(folder)
    result, history = read_records(folder)
    return Run(folder, models.load(folder / "model.safetensors"), result, history)


def read_records(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The result and the metrics of a finished run, without its model; raises as `load` does."""
    try:
        result = json.loads((folder / "result.json").read_text())
        lines = (folder / "metrics.jsonl").read_text().splitlines()
    except OSError as error:
        begun = (folder / "config.json").exists()
        raise DialError(
            wanted=f"a finished run in {folder}",
            got="one that is not finished" if begun else "no run there",
            fix="finish it with the command that began it and --resume"
            if begun
            else "check the path",
        ) from error
    return result, [json.loads(line) for line in lines]
