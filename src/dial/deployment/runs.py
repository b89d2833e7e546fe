"""Finished runs: the predictor, its classes, and what was measured."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dial import tensorfiles
from dial.data.pixels import Bytes
from dial.data.transforms import centre
from dial.deployment import model as models
from dial.errors import DialError
from dial.training.run_folder import read_records

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
        """Some of the target's images, `(n, C, size, size)`, as the network takes them."""
        path, wanted = self.folder / _SAMPLES, "images of the target"
        fix = "name a folder of images with --images"
        _, tensors = tensorfiles.load(path, wanted=wanted, version=None, fix=fix)
        if "pixels" not in tensors:
            raise DialError(wanted=f"{wanted} in {path}", got="a file without any", fix=fix)
        return centre(tensors["pixels"].numpy(), preprocessing=self.model.preprocessing)


def keep_samples(folder: Path, pixels: Bytes) -> None:
    """Put images of the target, `(n, side, side, channels)`, beside the run, to try exports on."""
    tensorfiles.save(folder / _SAMPLES, {"pixels": torch.from_numpy(pixels)}, about={})


def load(folder: str | os.PathLike[str]) -> Run:
    """A finished run from its folder.

    Raises:
        DialError: no run there, or one that is not finished.
    """
    folder = Path(folder)
    result, history = read_records(folder)
    return Run(folder, models.load(folder / "model.safetensors"), result, history)
