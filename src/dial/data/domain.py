"""A domain before its images are read: where they are and, apart from that, their labels."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dial.errors import DialError


@dataclass(frozen=True)
class ImageFiles:
    """Images that lie on disk, in the order in which results about them are told."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Images that come with a package: `pixels` is (N, height, width, channels) uint8."""

    pixels: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.pixels)


@dataclass(frozen=True)
class Labels:
    """A class for every image: `classes[indices[i]]` is the name of the class of image `i`."""

    classes: tuple[str, ...]
    indices: npt.NDArray[np.int64]

    @classmethod
    def from_names(cls, names: Sequence[str]) -> "Labels":
        """Number the classes that occur in `names`; whole numbers sort by value, not by spelling.

        >>> Labels.from_names(["10", "9", "10"]).classes
        ('9', '10')
        """
        # The same letter can be one code point or two (macOS); to a user it is one name.
        names = [unicodedata.normalize("NFC", name) for name in names]
        distinct = set(names)
        numbers = all(name.isascii() and name.isdecimal() for name in distinct)
        classes = sorted(distinct, key=lambda name: (int(name), name) if numbers else (0, name))
        number = {name: i for i, name in enumerate(classes)}
        return cls(tuple(classes), np.array([number[name] for name in names], dtype=np.int64))

    @property
    def counts(self) -> dict[str, int]:
        """How many images each class has."""
        counted = np.bincount(self.indices, minlength=len(self.classes))
        return dict(zip(self.classes, counted.tolist(), strict=True))

    def take(self, rows: npt.NDArray[np.int64]) -> "Labels":
        """The labels of some of the images; the classes stay, also those without an image."""
        return Labels(self.classes, self.indices[rows])

    def onto(self, classes: Sequence[str]) -> "Labels":
        """The same labels numbered as `classes` are; a class that is not among them is an error.

        A part of `classes` is enough: a target may well have images of only some of them.
        """
        number = {name: i for i, name in enumerate(classes)}
        extra = [name for name in self.classes if name not in number]
        if extra:
            absent = [name for name in classes if name not in self.counts]
            raise DialError(
                wanted=f"target classes that are among the source's {len(classes)}",
                got=f"{len(extra)} that are not ({listed(extra)}), while the target has "
                + (f"no images of {listed(absent)}" if absent else "all of the source's too"),
                fix="rename or remove those folders of the target, or pass --unlabelled "
                "(unlabelled=True) to use its images without scoring",
            )
        mapped = np.array([number[name] for name in self.classes], dtype=np.int64)
        return Labels(tuple(classes), mapped[self.indices])


@dataclass(frozen=True)
class Domain:
    """A set of images with a name. Labels, if any, stand beside the images, never in them."""

    name: str
    images: ImageFiles | ImageArray
    labels: Labels | None = None
    notes: tuple[str, ...] = ()

    def unlabelled(self) -> "Domain":
        """The same images without labels."""
        return replace(self, labels=None)

    def only(self, classes: Mapping[str, str]) -> "Domain":
        """The images of the classes that are keys of `classes`, each under its new name."""
        if self.labels is None or not isinstance(self.images, ImageFiles):
            raise DialError(
                wanted=f"class folders in {self.name}",
                got="images without classes",
                fix="point to the folder that holds one folder for each class",
            )
        names = [self.labels.classes[i] for i in self.labels.indices]
        rows = [i for i, name in enumerate(names) if name in classes]
        paths = tuple(self.images.paths[i] for i in rows)
        labels = Labels.from_names([classes[names[i]] for i in rows])
        return replace(self, images=ImageFiles(paths), labels=labels)


def require_labels(source: Domain) -> Labels:
    """The labels of a domain that is to be a source, which needs two classes or more."""
    if source.labels is None:
        raise DialError(
            wanted=f"a source with labels in {source.name}: one folder of images for each class",
            got="; ".join(["images without classes", *source.notes]),
            fix="sort the images into class folders, or give a list file with `path label` lines",
        )
    if len(source.labels.classes) < 2:  # noqa: PLR2004 - what a classifier tells apart
        raise DialError(
            wanted=f"two classes or more in the source {source.name}",
            got=f"one, {source.labels.classes[0]!r}",
            fix="point to the folder above it, which holds one folder for each class",
        )
    return source.labels


def scoring_labels(source: Domain, target: Domain) -> Labels | None:
    """The target's labels in the source's numbering, for scoring only; None if it has none."""
    classes = require_labels(source).classes
    return target.labels.onto(classes) if target.labels else None


def listed(names: Iterable[Any], most: int = 12) -> str:
    """Names in one line, the first of them if there are very many.

    >>> listed("abcd", most=2)
    'a, b and 2 more'
    """
    shown = [str(name) for name in names]
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")
