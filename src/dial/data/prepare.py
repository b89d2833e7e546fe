"""Domains made ready: every image read and found good, decoded once, labels kept beside them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from dial.data.cache import cached, survey
from dial.data.domain import Domain, ImageArray, ImageFiles, Labels, listed
from dial.data.pixels import ArrayPixels, FilePixels, Pixels, array_digests, resize_array
from dial.data.reading import bad_files_error, count_bad, list_bad
from dial.errors import DialError


@dataclass(frozen=True)
class PreparedDomain:
    """A domain that can be trained on: give training `pixels`, and `labels` of the source only.

    `images` are the files (or the array) behind the rows of `pixels`, in the same order.
    """

    name: str
    images: ImageFiles | ImageArray
    pixels: Pixels
    labels: Labels | None


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
    """Read all images of all domains; raise one `DialError` that names every bad file.

    With `skip_bad` they are left out instead, and a line on standard error says so.
    """
    folder = Path(cache_dir) if cache_dir is not None else None
    bad: dict[Path, str] = {}
    prepared = []
    for domain in domains:
        if isinstance(domain.images, ImageArray):
            prepared.append(_embedded(domain, domain.images, resize=resize, channels=channels))
            continue
        paths = domain.images.paths
        doing = f"reading {domain.name}"
        if use_cache:
            entry = cached(
                paths, resize=resize, channels=channels, cache_dir=folder, doing=doing, quiet=quiet
            )
        else:
            entry = survey(paths, resize=resize, channels=channels, doing=doing, quiet=quiet)
        bad |= {paths[row]: reason for row, reason in entry.bad.items()}
        rows = entry.good
        kept = tuple(paths[row] for row in rows)
        pixels: Pixels
        if entry.pixels is None:
            digests = entry.digests[rows]
            pixels = FilePixels(kept, digests=digests, resize=resize, channels=channels)
        else:
            pixels = ArrayPixels(entry.pixels, digests=entry.digests, rows=rows)
        labels = domain.labels.take(rows) if domain.labels else None
        prepared.append(PreparedDomain(domain.name, ImageFiles(kept), pixels, labels))
    if bad:
        _answer(bad, prepared, total=sum(len(d.images) for d in domains), skip=skip_bad)
    return prepared


def require_every_class(source: PreparedDomain) -> None:
    """Refuse a source that has no image of some class left."""
    assert source.labels is not None  # noqa: S101 - a source has them
    empty = [name for name, images in source.labels.counts.items() if not images]
    if empty:
        raise DialError(
            wanted=f"an image that can be read of every class of the source {source.name}",
            got=f"none of {listed(empty)}",
            fix="mend these images, or remove the class",
        )


def _embedded(domain: Domain, images: ImageArray, *, resize: int, channels: int) -> PreparedDomain:
    array = resize_array(images.pixels, resize=resize, channels=channels)
    pixels = ArrayPixels(array, digests=array_digests(np.ascontiguousarray(array)))
    return PreparedDomain(domain.name, images, pixels, domain.labels)


def _answer(
    bad: dict[Path, str], prepared: Sequence[PreparedDomain], *, total: int, skip: bool
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
    told = f"dial: going on without {count_bad(bad)}\n{list_bad(bad)}"
    Console(stderr=True).print(told, markup=False, highlight=False, soft_wrap=True)
