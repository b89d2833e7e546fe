"""What a finished run keeps of its domains for later, in `memory.safetensors`: no image.

Of the source, the mean features of each class: they stand for it when a run goes on without source
images. Of the target, a short description of some images and the class balance of the predictions,
against which new images are compared.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dial import files
from dial.errors import DialError
from dial.methods import Prototypes

NAME = "memory.safetensors"
VERSION = 1


class Memory(NamedTuple):
    """The memory of a run with `K` classes."""

    prototypes: Prototypes | None
    """Of the source, by the features of the finished network; None if there was no source."""
    descriptions: Tensor
    """`(M, F)`, of target images, as `dial.selection.drift.describe` makes them."""
    predicted: Tensor
    """`(K,)`, how many target images are predicted as each class."""


def find_prototypes(features: Tensor, labels: Tensor, num_classes: int) -> Prototypes:
    """Returns the mean features of each class, less the mean of all images.

    Args:
        features: `(N, D)`, of labelled images.
        labels: `(N,)`.
        num_classes: `K`.
    """
    sums = torch.zeros(num_classes, features.shape[1]).index_add_(0, labels, features)
    counts = labels.bincount(minlength=num_classes)
    centroids = sums / counts.clamp_min(1)[:, None] - features.mean(0)
    return Prototypes(centroids, counts)


def save(folder: Path, memory: Memory, *, classes: Sequence[str]) -> None:
    """Write a run's memory into its folder."""
    tensors = {"descriptions": memory.descriptions, "predicted": memory.predicted}
    if memory.prototypes is not None:
        tensors |= memory.prototypes._asdict()
    files.save_tensors(folder / NAME, tensors, about={"version": VERSION, "classes": classes})


def load(folder: Path) -> Memory:
    """Returns the memory of a run.

    Raises:
        DialError: none there, a damaged one, or one of another version.
    """
    wanted = "what a finished run remembers of its domains"
    fix = "make the run again with this version of dial, in another folder"
    _, tensors = files.load_tensors(folder / NAME, wanted=wanted, version=VERSION, fix=fix)
    try:
        prototypes = None
        if "centroids" in tensors:
            prototypes = Prototypes(tensors["centroids"], tensors["counts"])
        return Memory(prototypes, tensors["descriptions"], tensors["predicted"])
    except KeyError as error:
        path = folder / NAME
        raise DialError(wanted=f"{wanted} in {path}", got=f"no {error}", fix=fix) from error
