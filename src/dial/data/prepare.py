"""Domains ready for training: every image read, bad files reported, pixels decoded once."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from dial.data.cache import Entry, read_cached, survey
from dial.data.decode import bad_files_error, count_bad, list_bad
from dial.data.domain import Domain, ImageArray, Images, Labels, abbreviate
from dial.data.pixels import ArrayPixels, FilePixels, Pixels, array_digests
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


def prepare(
    domains: Sequence[Domain],
    *,
    resize: int,
    channels: int = 3,
    skip_bad: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    use_cache: bool = True,
    quiet: bool = False,
) -> list[PreparedDomain]:
    """Read all images of all domains.

    A `DialError` names every bad file. With `skip_bad` they are left out instead, and a line on
    standard error says so.
    """
    folder = Path(cache_dir) if cache_dir is not None else None
    read: Callable[..., Entry] = partial(read_cached, cache_dir=folder) if use_cache else survey
    bad: dict[str, str] = {}
    prepared = []
    for domain in domains:
        images, labels = domain.images, domain.labels
        pixels: Pixels
        if isinstance(images, ImageArray):
            array = images.resize(resize, channels=channels)
            pixels = ArrayPixels(array, digests=array_digests(array))
        else:
            title = f"reading {domain.name}"
            entry = read(images, resize=resize, channels=channels, title=title, quiet=quiet)
            names, rows = images.names, entry.good
            bad |= {names[row]: reason for row, reason in entry.bad.items()}
            images, labels = images.take(rows), labels.take(rows) if labels else None
            if entry.pixels is not None:
                pixels = ArrayPixels(entry.pixels, digests=entry.digests, rows=rows)
            else:
                digests = entry.digests[rows]
                pixels = FilePixels(images, digests=digests, resize=resize, channels=channels)
        prepared.append(PreparedDomain(domain.name, images, pixels, labels))
    if bad:
        _report_bad(bad, prepared, total=sum(len(d.images) for d in domains), skip=skip_bad)
    return prepared


def prepare_domains(
    sources: Sequence[Domain], targets: Sequence[Domain], **settings: Any
) -> tuple[list[PreparedSource], list[PreparedDomain]]:
    """Read all images of sources and targets, with the settings of `prepare`."""
    prepared = prepare((*sources, *targets), **settings)
    rest = prepared[len(sources) :]
    if any(len(domain.pixels) == 1 for domain in rest):
        raise DialError(
            wanted="a target of 2 or more images",
            got="1",
            fix="add images; a domain is adapted to by the statistics of many",
        )
    return require_every_class(prepared[: len(sources)]), rest


def prepare_pair(
    source: Domain, target: Domain, **settings: Any
) -> tuple[PreparedSource, PreparedDomain]:
    """Read all images of one source and one target, with the settings of `prepare`."""
    (first,), (second,) = prepare_domains([source], [target], **settings)
    return first, second


def require_every_class(domains: Sequence[PreparedDomain]) -> list[PreparedSource]:
    """Returns prepared domains as sources, which must have a good image of every class."""
    sources = []
    counts: Counter[str] = Counter()
    for domain in domains:
        if domain.labels is None:
            raise _no_image(domain.name, "images without classes")
        counts.update(domain.labels.counts)
        parts = domain.name, domain.images, domain.pixels, domain.labels
        sources.append(PreparedSource(*parts))
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
