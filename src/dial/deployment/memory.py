"""What a finished run keeps of its domains for later, in `memory.safetensors`: no image.

Of the source, the mean features of a few groups of images of each class: they stand for it when a
run goes on without source images. Of the target, a short description of some images and the class
balance of the predictions, against which new images are compared.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from dial import files
from dial.deployment.model import Model
from dial.deployment.pretrained import Before, sampled
from dial.errors import DialError
from dial.methods import Candidate, Prototypes
from dial.selection import drift
from dial.selection.outputs import Observer
from dial.training.budget import FITTED

NAME = "memory.safetensors"
VERSION = 2
GROUPS, MOST = 10, 2000
"""Groups of similar images in a class, each with a centroid; and at most so many in all."""


class About(TypedDict):
    """What the file says about its tensors."""

    classes: list[str]
    pretrained: str | None


class Memory(NamedTuple):
    """The memory of a run with `K` classes."""

    prototypes: Prototypes | None
    """Of the source; None if there was none."""
    descriptions: Tensor
    """`(M, F)`, of target images, as `dial.selection.drift.describe` makes them."""
    predicted: Tensor
    """`(K,)`, how many target images are predicted as each class."""
    pretrained: str | None = None
    """The digest of the pretrained network that the prototypes know."""


def find_prototypes(
    features: Tensor, labels: Tensor, *, pretrained: Tensor | None = None
) -> Prototypes:
    """Returns the mean features of groups of similar images, less the mean of all images.

    Groups are found by k-means in each class. A class with fewer than four images is one group.

    Args:
        features: `(N, D)`, of labelled images by the finished network.
        labels: `(N,)`.
        pretrained: `(N, D)`, of the same images by the pretrained network, which knows better
            what is similar: training makes the images of a class alike.
    """
    from sklearn.cluster import KMeans

    similar = features if pretrained is None else pretrained
    groups, classes, num_classes = [], [], len(labels.unique())
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().flatten()
        count = max(1, min(GROUPS, MOST // num_classes, len(rows) // 2))
        found = KMeans(count, n_init=1, random_state=0).fit_predict(similar[rows].numpy())
        groups += [rows[torch.from_numpy(found == number)] for number in range(count)]
        classes += count * [label]

    def means(of: Tensor) -> Tensor:
        return torch.stack([of[rows].mean(0) for rows in groups]) - of.mean(0)

    before = None if pretrained is None else means(pretrained)
    return Prototypes(means(features), torch.tensor(classes), before)


def look_back(
    images: Observer, model: Model, *, before: Before | None, chosen: Candidate | None
) -> Prototypes:
    """Returns prototypes of the source.

    Args:
        images: with the sources.
        model: the finished one.
        before: features by the pretrained network that it was trained from, if there was one.
        chosen: the candidate that was chosen, if there were any; it has the features of the source.
    """
    if chosen is not None and chosen.labels is not None:
        features, labels = chosen.source, chosen.labels
    else:
        seen = sampled(images).observe_sources(model.network, FITTED[0])
        features, labels = torch.from_numpy(seen.features), torch.from_numpy(seen.labels)
    return find_prototypes(features, labels, pretrained=before.source if before else None)


def remember(
    images: Observer,
    model: Model,
    prototypes: Prototypes | None,
    digest: str | None,
    predicted: Tensor | None,
) -> Memory:
    """Returns the memory of a finished model.

    Args:
        images: with the target.
        model: the finished one.
        prototypes: of the source, if there was one.
        digest: of the pretrained network that they know.
        predicted: classes of the target images; by default those of the images described.
    """
    batches = images.batches(images.target, drift.DESCRIBED)
    described = [*drift.describe(model.network, batches, classifier=images.classifier)]
    descriptions, logits = (torch.cat(parts) for parts in zip(*described, strict=True))
    labels = logits.argmax(1) if predicted is None else predicted
    return Memory(prototypes, descriptions, labels.bincount(minlength=len(model.classes)), digest)


def save(folder: Path, memory: Memory, *, classes: Sequence[str]) -> None:
    """Write a run's memory into its folder."""
    tensors = {"descriptions": memory.descriptions, "predicted": memory.predicted}
    if memory.prototypes is not None:
        parts = memory.prototypes._asdict()
        tensors |= {name: part for name, part in parts.items() if part is not None}
    about = {"version": VERSION, "classes": classes, "pretrained": memory.pretrained}
    files.save_tensors(folder / NAME, tensors, about=about)


def load(folder: Path, model: Model) -> Memory:
    """Returns the memory of a run, which must fit its model.

    Raises:
        DialError: none there, a damaged one, or one of another version or another model.
    """
    path, wanted = folder / NAME, "what a finished run remembers of its domains"
    fix = "make the run again with this version of dial, with a report or a held-out source"
    about, tensors = files.load_tensors(path, wanted=wanted, version=VERSION, fix=fix, kind=About)
    count, size = len(model.classes), model.num_features
    fits = about.get("classes") == [*model.classes]
    fits = fits and _is_sound(tensors.get("descriptions"), None, None)
    fits = fits and _is_sound(tensors.get("predicted"), count, integers=True)
    centroids, labels = tensors.get("centroids"), tensors.get("labels")
    pretrained, digest = tensors.get("pretrained"), about.get("pretrained")
    prototypes = None
    if centroids is not None:
        fits = fits and _is_sound(centroids, None, size)
        fits = fits and _is_sound(labels, len(centroids), integers=True)
        fits = fits and 0 <= int(labels.min()) <= int(labels.max()) < count  # type: ignore[union-attr]
        if pretrained is not None:
            fits = fits and _is_sound(pretrained, len(centroids), size) and isinstance(digest, str)
        if labels is not None:
            prototypes = Prototypes(centroids, labels, pretrained)
    if not fits:
        raise DialError(wanted=f"{wanted} in {path}", got="that of another model", fix=fix)
    return Memory(prototypes, tensors["descriptions"], tensors["predicted"], digest)


def _is_sound(tensor: Tensor | None, *shape: int | None, integers: bool = False) -> bool:
    """Whether a tensor has this shape, in which None is any size above 0, and finite values."""
    if tensor is None or tensor.dim() != len(shape) or tensor.is_floating_point() == integers:
        return False
    sizes = zip(tensor.shape, shape, strict=True)
    has_shape = all(size > 0 and wanted in (None, size) for size, wanted in sizes)
    return has_shape and bool(tensor.isfinite().all())
