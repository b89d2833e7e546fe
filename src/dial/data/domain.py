"""A domain before its images are read: its images and, beside them, their labels."""

import hashlib
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from dial.console import track
from dial.data.decode import BadImage, Bytes, GoodImage, digest, read_images
from dial.data.hand_labels import HandLabels
from dial.data.members import ImageMembers, stamp, unlike
from dial.data.path_table import Lazy, PathTable
from dial.errors import DialError
from dial.files import printable

_SIDE_OF_DIGITS = 32
_RESERVED = ("trials", "last.ckpt", "report.html")  # of a run's folder, which targets share


@dataclass(frozen=True)
class ImageFiles:
    """Images on disk, in the order in which results list them.

    Their paths are a tuple, or the table that a list is read into: it may have millions.
    """

    paths: Sequence[Path]
    like_digits: ClassVar[bool] = False
    kind: ClassVar[str] = "files"

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Path:
        """Returns where an image is."""
        return self.paths[row]

    @property
    def names(self) -> Sequence[str]:
        """What predictions and messages call each image: its path."""
        if isinstance(self.paths, PathTable):
            return Lazy(len(self), lambda row: printable(self.paths[row]))
        return [printable(path) for path in self.paths]

    @property
    def identity(self) -> tuple[str | int, ...]:
        """Equal for the same images: their number and, as they are sorted, the two ends."""
        return len(self), os.path.realpath(self.paths[0]), os.path.realpath(self.paths[-1])

    @property
    def fingerprint(self) -> str:
        """A hash of the last two parts of all paths, so that the folder may move."""
        return _hash("/".join(path.parts[-2:]) for path in self.paths)

    def take(self, rows: Iterable[int]) -> "ImageFiles":
        """Returns the images of these rows."""
        if isinstance(self.paths, PathTable):
            return ImageFiles(self.paths.take(rows))
        return ImageFiles(tuple(self.paths[row] for row in rows))

    def join(self, others: Sequence["Images"]) -> "ImageFiles":
        """Returns these images and then the others', which must be files too."""
        parts = [self.paths, *(each.paths for each in others if isinstance(each, ImageFiles))]
        if len(parts) <= len(others):
            raise unlike([self, *others])
        joined = itertools.chain(*parts)
        is_long = any(isinstance(part, PathTable) for part in parts)
        return ImageFiles(PathTable.of(joined) if is_long else tuple(joined))

    def distinct(self) -> "ImageFiles":
        """Returns each file once; a list may name one twice."""
        if isinstance(self.paths, PathTable):
            return ImageFiles(self.paths.distinct())
        return ImageFiles(tuple(dict.fromkeys(self.paths)))

    def stamps(self) -> Iterator[bytes]:
        """Yields what a cache of these images depends on: paths, sizes and times."""
        return map(stamp, self.paths)

    def decode(
        self, *, resize: int, channels: int, title: str, quiet: bool
    ) -> Iterator[GoodImage | BadImage]:
        """Yields every image, `(resize, resize, channels)`, in order; nothing is kept."""
        return read_images(self.paths, resize=resize, channels=channels, title=title, quiet=quiet)


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Images in memory: `pixels` is `(N, height, width, channels)` uint8, `name` the domain's."""

    pixels: Bytes
    name: str
    kind: ClassVar[str] = "an array"

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def like_digits(self) -> bool:
        """Whether the images are small and grey; the default network follows from it."""
        *sides, channels = self.pixels.shape[1:]
        return bool(channels == 1 and max(sides) <= _SIDE_OF_DIGITS)

    @property
    def names(self) -> Sequence[str]:
        """What predictions and messages call each image: the domain's name and the row."""
        return Lazy(len(self), lambda row: f"{self.name}/{row}")

    @property
    def identity(self) -> tuple[str | int, ...]:
        """Equal for the same images."""
        return (self.name,)

    @property
    def fingerprint(self) -> str:
        """A hash of the name and the number of images."""
        return _hash([self.name, str(len(self))])

    def take(self, rows: Iterable[int]) -> "ImageArray":
        """Returns the images of these rows."""
        return ImageArray(self.pixels[np.fromiter(rows, dtype=np.int64)], self.name)

    def join(self, others: Sequence["Images"]) -> "ImageArray":
        """Returns these images and then the others', which must be arrays of the same shape."""
        arrays = [each.pixels for each in others if isinstance(each, ImageArray)]
        if len(arrays) < len(others) or any(a.shape[1:] != self.pixels.shape[1:] for a in arrays):
            raise unlike([self, *others])
        return ImageArray(np.concatenate([self.pixels, *arrays]), self.name)

    def distinct(self) -> "ImageArray":
        """Returns the images as they are."""
        return self

    def resize(self, side: int, *, channels: int) -> Bytes:
        """Returns the images as `(N, side, side, channels)`."""
        if self.pixels.shape[1:] == (side, side, channels):
            return self.pixels
        mode = "L" if channels == 1 else "RGB"
        images = [Image.fromarray(row.squeeze()).convert(mode) for row in self.pixels]
        small = [np.asarray(i.resize((side, side), Image.Resampling.BILINEAR)) for i in images]
        return np.stack(small).reshape(len(self), side, side, channels)

    def decode(
        self, *, resize: int, channels: int, title: str, quiet: bool
    ) -> Iterator[GoodImage | BadImage]:
        """Yields every image, `(resize, resize, channels)`, in order."""
        _, height, width, _ = self.pixels.shape
        pairs = zip(self.pixels, self.resize(resize, channels=channels), strict=True)
        for row, small in track(pairs, total=len(self), title=title, quiet=quiet):
            yield GoodImage(width, height, digest(row.tobytes()), small)


StoredImages = ImageFiles | ImageMembers
Images = StoredImages | ImageArray


def _hash(names: Iterable[str]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for number, name in enumerate(names):
        text = f"\n{name}" if number else name
        found.update(text.encode("utf-8", "surrogateescape"))
    return found.hexdigest()


@dataclass(frozen=True)
class Labels:
    """A class for every image: `classes[indices[i]]` is the name of the class of image `i`."""

    classes: tuple[str, ...]
    indices: npt.NDArray[np.int64]

    @classmethod
    def from_names(cls, names: Sequence[str]) -> "Labels":
        """Number the classes that occur in `names`; whole numbers sort by value, not as text.

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
        """The number of images of each class."""
        counts = np.bincount(self.indices, minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))

    def take(self, rows: npt.NDArray[np.int64]) -> "Labels":
        """Returns the labels of these rows; a class stays even if it has no image left."""
        return Labels(self.classes, self.indices[rows])

    def onto(self, classes: Sequence[str]) -> "Labels":
        """Returns the same labels in the numbering of `classes`, which must have them all."""
        number = {name: i for i, name in enumerate(classes)}
        extra = [name for name in self.classes if name not in number]
        if extra:
            absent = [name for name in classes if name not in self.counts]
            raise DialError(
                wanted=f"target classes that are among the source's {len(classes)}",
                got=f"{len(extra)} that are not ({abbreviate(extra)}), while the target has "
                + (f"no images of {abbreviate(absent)}" if absent else "all of the source's too"),
                fix="rename or remove those folders of the target, or pass --unlabelled "
                "(unlabelled=True) to use its images without scoring",
            )
        numbers = np.array([number[name] for name in self.classes], dtype=np.int64)
        return Labels(tuple(classes), numbers[self.indices])


@dataclass(frozen=True)
class Domain:
    """A set of images with a name. Labels, if any, are kept beside the images, never in them."""

    name: str
    images: Images
    labels: Labels | None = None
    notes: tuple[str, ...] = ()
    by_hand: HandLabels | None = None
    """How the labels were given, if it was on a page of `dial label`."""

    def unlabelled(self) -> "Domain":
        """Returns the same images without labels."""
        return Domain(self.name, self.images, None, self.notes)

    def only(self, classes: Mapping[str, str]) -> "LabelledDomain":
        """Returns the images of the classes that are keys of `classes`, renamed to its values."""
        if self.labels is None:
            raise DialError(
                wanted=f"class folders in {self.name}",
                got="images without classes",
                fix="point to the folder that holds one folder for each class",
            )
        names = [self.labels.classes[i] for i in self.labels.indices]
        rows = [i for i, name in enumerate(names) if name in classes]
        labels = Labels.from_names([classes[names[i]] for i in rows])
        return LabelledDomain(self.name, self.images.take(rows), labels, self.notes)


@dataclass(frozen=True)
class LabelledDomain(Domain):
    """A domain whose images all have labels, as a source needs."""

    labels: Labels = field()  # without the default None of `Domain`


Domains = tuple[Sequence[LabelledDomain], Sequence[Domain]]
"""All sources and all targets of a run."""


def first_files(domains: Iterable[Domain]) -> list[Path]:
    """Returns the first file of each domain that has files, to ask another machine for."""
    paths = []
    for images in (domain.images for domain in domains):
        if isinstance(images, ImageFiles):
            paths.append(images.paths[0])
        elif isinstance(images, ImageMembers):
            paths.append(images.shards[0])
    return [path for path in paths if os.path.exists(path)]


def as_source(domain: Domain) -> LabelledDomain:
    """Returns a domain as a source, which must have labels, of two classes or more."""
    if domain.labels is None:
        raise DialError(
            wanted=f"a source with labels in {domain.name}: one folder of images for each class",
            got="; ".join(["images without classes", *domain.notes]),
            fix="sort the images into class folders, or pass a list file with `path label` lines",
        )
    if len(domain.labels.classes) < 2:  # noqa: PLR2004 - the least that can be classified
        raise DialError(
            wanted=f"two classes or more in the source {domain.name}",
            got=f"one, {domain.labels.classes[0]!r}",
            fix="point to the folder above it, which holds one folder for each class",
        )
    return LabelledDomain(domain.name, domain.images, domain.labels, domain.notes)


def share_classes(sources: Sequence[LabelledDomain]) -> list[LabelledDomain]:
    """Returns sources with the union of their classes, in one numbering.

    A source that lacks classes of the others gets a note that names them.
    """
    if len(sources) <= 1:
        return [*sources]
    present = [(domain.labels.classes, np.unique(domain.labels.indices)) for domain in sources]
    names = [classes[i] for classes, indices in present for i in indices]
    classes = Labels.from_names(names).classes
    shared = []
    for domain in sources:
        absent = [name for name in classes if name not in domain.labels.classes]
        notes = (f"no images of {abbreviate(absent)}, which other sources have",) if absent else ()
        labels = domain.labels.onto(classes)
        shared.append(LabelledDomain(domain.name, domain.images, labels, domain.notes + notes))
    return shared


def merge(sources: Sequence[LabelledDomain]) -> LabelledDomain:
    """Returns the images of all sources as those of one domain."""
    first, *rest = sources
    if not rest:
        return first
    labels = np.concatenate([domain.labels.indices for domain in sources])
    return LabelledDomain(
        "+".join(domain.name for domain in sources),
        first.images.join([domain.images for domain in rest]),
        Labels(first.labels.classes, labels),
        tuple(f"{domain.name}: {note}" for domain in sources for note in domain.notes),
    )


def short_names(domains: Sequence[Domain]) -> list[str]:
    """Returns a short name for each domain, all different, fit for a folder.

    >>> short_names([Domain(n, ImageFiles(())) for n in ("office31:dslr", "a/photo", "b/photo")])
    ['dslr', 'photo', 'photo-2']
    """
    names = [*_RESERVED]
    for domain in domains:
        last = re.split(r"[/\\:]", domain.name.rstrip("/\\"))[-1]
        base = re.sub(r"[^\w.-]", "_", last).strip(".") or "domain"
        numbers = itertools.count(2)
        name = base
        while name in names:
            name = f"{base}-{next(numbers)}"
        names.append(name)
    return names[len(_RESERVED) :]


def scoring_labels(source: LabelledDomain, target: Domain) -> Labels | None:
    """Returns the target's labels in the source's numbering, for scoring; None if it has none."""
    return target.labels.onto(source.labels.classes) if target.labels else None


def as_labelled(domain: Domain, classes: Sequence[str]) -> LabelledDomain:
    """Returns target images with labels that were given for training, in a numbering of classes.

    Raises:
        DialError: images without labels, or a label that is none of the classes.
    """
    if domain.labels is None:
        raise DialError(
            wanted=f"a label for each image of {domain.name}: `path label` lines, a table with the "
            "columns path and label, or class folders",
            got="; ".join(["images without labels", *domain.notes]),
            fix="add the labels, or leave --labelled out",
        )
    extra = [name for name in domain.labels.classes if name not in classes]
    if extra:
        raise DialError(
            wanted=f"labels in {domain.name} that are among the {len(classes)} classes "
            f"({abbreviate(classes)})",
            got=abbreviate(extra),
            fix="correct these labels, or remove their lines",
        )
    labels = domain.labels.onto(classes)
    return LabelledDomain(domain.name, domain.images, labels, domain.notes)


def abbreviate(names: Iterable[Any], most: int = 12) -> str:
    """Returns names in one line, and only the first of very many.

    >>> abbreviate("abcd", most=2)
    'a, b and 2 more'
    """
    words = [str(name) for name in names]
    rest = len(words) - most
    return ", ".join(words[:most]) + (f" and {rest} more" if rest > 0 else "")
