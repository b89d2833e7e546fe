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
from dial.deployment.model import Model
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


def load(folder: Path, model: Model) -> Memory:
    """Returns the memory of a run, which must fit its model.

    Raises:
        DialError: none there, a damaged one, or one of another version or another model.
    """
    path, wanted = folder / NAME, "what a finished run remembers of its domains"
    fix = "make the run again with this version of dial, with a report or a held-out source"
    about, tensors = files.load_tensors(path, wanted=wanted, version=VERSION, fix=fix)
    count = len(model.classes)
    fits = about.get("classes") == [*model.classes]
    fits = fits and _is_sound(tensors.get("descriptions"), None, None)
    fits = fits and _is_sound(tensors.get("predicted"), count, integers=True)
    prototypes = None
    if "centroids" in tensors:
        fits = fits and _is_sound(tensors["centroids"], count, model.num_features)
        fits = fits and _is_sound(tensors.get("counts"), count, integers=True)
    if not fits:
        raise DialError(wanted=f"{wanted} in {path}", got="that of another model", fix=fix)
    if "centroids" in tensors:
        prototypes = Prototypes(tensors["centroids"], tensors["counts"])
    return Memory(prototypes, tensors["descriptions"], tensors["predicted"])


def _is_sound(tensor: Tensor | None, *shape: int | None, integers: bool = False) -> bool:
    """Whether a tensor has this shape, in which None is any size above 0, and finite values."""
    if tensor is None or tensor.dim() != len(shape) or tensor.is_floating_point() == integers:
        return False
    sizes = zip(tensor.shape, shape, strict=True)
    has_shape = all(size > 0 and wanted in (None, size) for size, wanted in sizes)
    return has_shape and bool(tensor.isfinite().all())
