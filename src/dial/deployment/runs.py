"""Finished runs, read from their folders."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dial import files
from dial.backbones import Backbone
from dial.data.decode import Bytes
from dial.data.transforms import center
from dial.deployment import model as models
from dial.errors import DialError
from dial.files.records import parse_json, require_type
from dial.training.run_files import Epoch, read_result

_SAMPLES = "samples.safetensors"


@dataclass(frozen=True)
class Run:
    """A finished run: the predictor, its classes, and what was measured."""

    folder: Path
    model: models.Model
    result: dict[str, Any]
    history: list[dict[str, Any]]

    def __repr__(self) -> str:
        """Returns the run's folder, what it is, and how good."""
        accuracy = self.result.get("target_accuracy")
        score = "" if accuracy is None else f", target accuracy {accuracy:.1%}"
        about = f"{self.result.get('method')} on {self.model.backbone}"
        return f"<Run {str(self.folder)!r}: {about}, {len(self.model.classes)} classes{score}>"

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
        pixels, preprocessing = tensors["pixels"].numpy(), self.model.preprocessing
        shape = (preprocessing.resize, preprocessing.resize, preprocessing.channels)
        if pixels.dtype != np.uint8 or pixels.shape[1:] != shape or not len(pixels):
            got = f"{pixels.dtype} of the shape {pixels.shape}"
            raise DialError(wanted=f"{wanted} in {path}, {shape} each", got=got, fix=fix)
        return center(pixels, preprocessing=preprocessing)


def keep_samples(folder: Path, pixels: Bytes) -> None:
    """Save images of the target, `(n, side, side, channels)`, in the run, to test exports with."""
    files.save_tensors(folder / _SAMPLES, {"pixels": torch.from_numpy(pixels)}, about={})


@dataclass(frozen=True)
class TargetRuns(Mapping[str, Run]):
    """A finished run with several targets: the run of each by its name, which share a folder."""

    folder: Path
    runs: dict[str, Run]
    result: dict[str, Any]
    history: list[dict[str, Any]]

    def __getitem__(self, target: str) -> Run:
        return self.runs[target]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)


def load(
    folder: str | os.PathLike[str],
    *,
    target: str | None = None,
    backbone: Backbone | nn.Module | None = None,
) -> Run:
    """Returns a finished run from its folder.

    Args:
        folder: the run's folder.
        target: the name of one of several targets; not needed if there is only one.
        backbone: the network that was passed to `dial.adapt` as an object; not needed for a
            backbone that has a name.

    Raises:
        DialError: no run there, one that is not finished, one of another network, or one of
            several targets of which none is named.
    """
    folder = locate(Path(folder), target)
    result, history = read_records(folder)
    model = models.load(folder / "model.safetensors", backbone=backbone)
    return Run(folder, model, result, history)


def load_all(
    folder: str | os.PathLike[str], *, backbone: Backbone | nn.Module | None = None
) -> Run | TargetRuns:
    """Returns a finished run, or the runs of all its targets if there are several."""
    folder = Path(folder)
    result, history = read_records(folder)
    if "targets" not in result:
        return load(folder, backbone=backbone)
    runs = {name: load(folder, target=name, backbone=backbone) for name in result["targets"]}
    return TargetRuns(folder, runs, result, history)


def locate(folder: Path, target: str | None) -> Path:
    """Returns the folder of one target's run: that of the run itself if it has one target.

    Raises:
        DialError: no run there, or a target that the run does not have.
    """
    result, _ = read_records(folder)
    names = [*result.get("targets", ())]
    if not names and target is None:
        return folder
    if target in names:
        return folder / str(target)
    raise DialError(
        wanted=f"one of the targets {', '.join(names)} of the run in {folder}"
        if names
        else f"a run with several targets in {folder}",
        got=repr(target) if target else "none named",
        fix=f"add --target {names[0]}" if names else "leave --target out: the run has one target",
    )


def read_records(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the result and the metrics of a finished run, without its model.

    Raises:
        DialError: no run there, one that is not finished, or damaged files.
    """
    try:
        result = read_result(folder)
        lines = (folder / "metrics.jsonl").read_bytes().splitlines()
        history = [parse_json(line, dict[str, float | None]) for line in lines]
        require_type(history, list[Epoch], name="metrics.jsonl")
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
