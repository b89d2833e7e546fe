"""Finished runs, read from their folders."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dial import files
from dial.backbones import Backbone
from dial.data.decode import Bytes
from dial.data.transforms import center
from dial.deployment import model as models
from dial.errors import DialError

_SAMPLES = "samples.safetensors"


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

    def samples(self) -> Tensor:
        """Returns some of the target's images, `(n, C, size, size)`, as the network's input."""
        path, wanted = self.folder / _SAMPLES, "images of the target"
        fix = "name a folder of images with --images"
        _, tensors = files.load_tensors(path, wanted=wanted, version=None, fix=fix)
        if "pixels" not in tensors:
            raise DialError(wanted=f"{wanted} in {path}", got="a file without any", fix=fix)
        return center(tensors["pixels"].numpy(), preprocessing=self.model.preprocessing)


def keep_samples(folder: Path, pixels: Bytes) -> None:
    """Save images of the target, `(n, side, side, channels)`, in the run, to test exports with."""
    files.save_tensors(folder / _SAMPLES, {"pixels": torch.from_numpy(pixels)}, about={})


def load(folder: str | os.PathLike[str], *, backbone: Backbone | nn.Module | None = None) -> Run:
    """Returns a finished run from its folder.

    Args:
        folder: the run's folder.
        backbone: the network that was passed to `dial.adapt` as an object; not needed for a
            backbone that has a name.

    Raises:
        DialError: no run there, one that is not finished, or one of another network.
    """
    folder = Path(folder)
    result, history = read_records(folder)
    model = models.load(folder / "model.safetensors", backbone=backbone)
    return Run(folder, model, result, history)


def read_records(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the result and the metrics of a finished run, without its model.

    Raises:
        DialError: no run there, one that is not finished, or damaged files.
    """
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
