"""Domains ready for training: every image read, bad files reported, pixels decoded once."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dial.data.cache import read_cached, survey
from dial.data.cache_entries import parse_size
from dial.data.decode import bad_files_error, count_bad, list_bad
from dial.data.domain import Domain, ImageArray, Images, Labels, abbreviate
from dial.data.members import ImageMembers
from dial.data.pixels import (
    ArrayPixels,
    FilePixels,
    JoinedPixels,
    MemberPixels,
    Pixels,
    Rows,
    SomePixels,
    array_digests,
)
from dial.errors import DialError


@dataclass(frozen=True)
class PreparedDomain:
    """A domain that can be trained on: training gets `pixels`, and `labels` of the source only.

    `images` are the files or the array that `pixels` come from, row by row.
    """

    name: str
    images: Images
    pixels: Pixels
    labels: Labels | None


@dataclass(frozen=True)
class PreparedSource(PreparedDomain):
    """A prepared domain with labels: the source, or a part of it."""

    labels: Labels = field()


@dataclass(frozen=True)
class PreparedTarget(PreparedDomain):
    """A prepared target. Labels that were given for training are in `known`, not in `labels`."""

    known: Rows | None = None
    """`(N,)`, the class of each image whose label was given, and -1 for all others; None if no
    label was given."""

    @property
    def labelled(self) -> tuple[Pixels, Rows] | None:
        """The images whose labels were given, and their labels; None if there are none."""
        if self.known is None:
            return None
        rows = np.flatnonzero(self.known >= 0)
        return SomePixels(self.pixels, rows), self.known[rows]

    @property
    def scored(self) -> PreparedDomain:
        """The images without a known label, by which a run is judged."""
        return self if self.known is None else take(self, np.flatnonzero(self.known < 0))


def take(domain: PreparedDomain, rows: Rows) -> PreparedDomain:
    """Returns some images of a domain."""
    labels = None if domain.labels is None else domain.labels.take(rows)
    pixels = SomePixels(domain.pixels, rows)
    return PreparedDomain(domain.name, domain.images.take(rows), pixels, labels)


def prepare(
    domains: Sequence[Domain],
    *,
    resize: int,
    channels: int = 3,
    skip_bad: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_limit: str | int | None = None,
    use_cache: bool = True,
    quiet: bool = False,
) -> list[PreparedDomain]:
    """Read all images of all domains.

    A `DialError` names every bad file. With `skip_bad` they are left out instead, and a line on
    standard error says so. `cache_limit` is the size that the cache may have, like `10GB`.
    """
    folder = Path(cache_dir) if cache_dir is not None else None
    limit = None if cache_limit is None else parse_size(cache_limit)
    sizes: dict[str, Any] = {"resize": resize, "channels": channels, "quiet": quiet}
    bad: dict[str, str] = {}
    prepared = []
    for domain in domains:
        images, labels = domain.images, domain.labels
        pixels: Pixels
        if isinstance(images, ImageArray):
            array = images.resize(resize, channels=channels)
            pixels = ArrayPixels(array, digests=array_digests(array))
        else:
            own = sizes | {"title": f"reading {domain.name}"}
            if use_cache:
                own |= {"cache_dir": folder, "cache_limit": limit, "domain": domain.name}
            entry = read_cached(images, **own) if use_cache else survey(images, **own)
            names, rows = images.names, entry.good
            bad |= {names[row]: reason for row, reason in entry.bad.items()}
            if entry.bad:
                images, labels = images.take(rows), labels.take(rows) if labels else None
            if entry.pixels is not None:
                pixels = ArrayPixels(entry.pixels, digests=entry.digests, rows=rows)
            else:
                own = {"digests": entry.digests[rows], "resize": resize, "channels": channels}
                if isinstance(images, ImageMembers):
                    pixels = MemberPixels(images, **own)
                else:
                    pixels = FilePixels(images, **own)
        prepared.append(PreparedDomain(domain.name, images, pixels, labels))
    if bad:
        _report_bad(bad, prepared, total=sum(len(d.images) for d in domains), skip=skip_bad)
    return prepared


def prepare_domains(
    sources: Sequence[Domain],
    targets: Sequence[Domain],
    *,
    labelled: Domain | None = None,
    **settings: Any,
) -> tuple[list[PreparedSource], list[PreparedTarget]]:
    """Read all images of sources and targets, with the settings of `prepare`.

    `labelled` are images of the only target whose labels were given.
    """
    given = [] if labelled is None else [labelled]
    prepared = prepare((*sources, *targets, *given), **settings)
    ends = len(sources), len(sources) + len(targets)
    rest = [PreparedTarget(*_parts(domain)) for domain in prepared[slice(*ends)]]
    if given:
        rest = [add_labelled(rest[0], prepared[-1])]
    if any(len(domain.pixels) == 1 for domain in rest):
        raise DialError(
            wanted="a target of 2 or more images",
            got="1",
            fix="add images; a domain is adapted to by the statistics of many",
        )
    return require_every_class(prepared[: len(sources)]), rest


def add_labelled(target: PreparedTarget, labelled: PreparedDomain) -> PreparedTarget:
    """Returns a target with labelled images of its own, each of them once.

    The images are told by their content: of those that the target has already, its copies leave,
    and so no image with a known label is ever scored.

    Raises:
        DialError: an image with two labels, or a target of which every image has one.
    """
    if labelled.labels is None:
        raise _no_image(labelled.name, "images without classes")
    classes, indices = labelled.labels.classes, labelled.labels.indices
    hashes = [row.tobytes() for row in labelled.pixels.digests]
    first = {digest: row for row, digest in reversed([*enumerate(hashes)])}
    for row, digest in enumerate(hashes):
        if indices[row] != indices[first[digest]]:
            names = labelled.images.names
            raise DialError(
                wanted=f"one label for each image of {labelled.name}",
                got=f"{names[first[digest]]} as {classes[indices[first[digest]]]}, and the same "
                f"image {names[row]} as {classes[indices[row]]}",
                fix="keep the right one",
            )
    own = [row for row, each in enumerate(target.pixels.digests) if each.tobytes() not in first]
    if not own:
        raise DialError(
            wanted=f"target images without a label in {target.name}",
            got=f"{len(target.pixels)}, all of which {labelled.name} labels",
            fix="leave some out of --labelled, or train on them as a source",
        )
    rest = take(target, np.array(own, dtype=np.int64))
    given = take(labelled, np.array(sorted(first.values()), dtype=np.int64))
    known = given.labels.indices  # type: ignore[union-attr]
    labels = None
    if rest.labels is not None:
        labels = Labels(classes, np.concatenate([rest.labels.indices, known]))
    return PreparedTarget(
        target.name,
        rest.images.join([given.images]),
        JoinedPixels(rest.pixels, given.pixels),
        labels,
        np.concatenate([np.full(len(own), -1), known]),
    )


def prepare_pair(
    source: Domain, target: Domain, **settings: Any
) -> tuple[PreparedSource, PreparedTarget]:
    """Read all images of one source and one target, with the settings of `prepare`."""
    (first,), (second,) = prepare_domains([source], [target], **settings)
    return first, second


def _parts(domain: PreparedDomain) -> tuple[Any, ...]:
    return domain.name, domain.images, domain.pixels, domain.labels


def require_every_class(domains: Sequence[PreparedDomain]) -> list[PreparedSource]:
    """Returns prepared domains as sources, which must have a good image of every class."""
    sources = []
    counts: Counter[str] = Counter()
    for domain in domains:
        if domain.labels is None:
            raise _no_image(domain.name, "images without classes")
        counts.update(domain.labels.counts)
        sources.append(PreparedSource(*_parts(domain)))
    empty = [name for name, images in counts.items() if not images]
    if empty:
        name = ", ".join(domain.name for domain in domains)
        raise _no_image(name, f"none of {abbreviate(empty)}")
    return sources


def _no_image(name: str, got: str) -> DialError:
    return DialError(
        wanted=f"an image that can be read of every class of the source {name}",
        got=got,
        fix="repair these images, or remove the class",
    )


def _report_bad(
    bad: dict[str, str], prepared: Sequence[PreparedDomain], *, total: int, skip: bool
) -> None:
    if not skip:
        raise bad_files_error(bad, total=total)
    for domain in prepared:
        if not len(domain.pixels):
            raise DialError(
                wanted=f"an image that can be read in {domain.name}",
                got=count_bad(bad),
                fix=f"point to a folder of sound images; these are not:\n{list_bad(bad)}",
            )
    text = f"dial: going on without {count_bad(bad)}\n{list_bad(bad)}"
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)
