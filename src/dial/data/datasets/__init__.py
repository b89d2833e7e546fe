"""Known data sets, one file each, and the one way to open a domain from what a user writes."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dial.data.datasets.interface import DataSet
from dial.data.domain import (
    Domain,
    ImageFiles,
    LabelledDomain,
    as_source,
    share_classes,
)
from dial.data.folders import find_shards, is_image_name, read_folder, read_list
from dial.data.shards import read_shards
from dial.errors import DialError
from dial.files import expand_home, is_device, printable
from dial.registry import Registry

__all__ = [
    "DATASETS",
    "DataSet",
    "describe",
    "get",
    "names",
    "open_domain",
    "open_domains",
    "open_pair",
]

DATASETS = Registry("dial.data.datasets", DataSet)  # type: ignore[type-abstract]
Location = str | os.PathLike[str]
names, get = DATASETS.names, DATASETS.create


def describe(name: str) -> dict[str, str]:
    """Returns a data set's name, its domains and a line about it, for a table."""
    domains = ", ".join(get(name).domains)
    return {"data set": name, "domains": domains, "about": DATASETS.describe()[name]}


def open_domain(
    specification: Location | Domain, *, data: Location | None = None, unlabelled: bool = False
) -> Domain:
    """Returns the domain that a path or `data_set:domain` stands for; a `Domain` stays as it is.

    A path is a folder of images (class folders or flat), tar archives (a folder of them, one, or a
    pattern), a text file that lists images, or one image. Whatever exists on disk is a path, even
    with a colon in its name.

    Args:
        specification: the path, the name, or the domain.
        data: the folder that holds known data sets, and that lists are relative to.
        unlabelled: drop the labels that the layout implies.
    """
    domain = specification
    if not isinstance(domain, Domain):
        text = os.fspath(domain)
        folder = expand_home(data) if data is not None else None
        path = expand_home(text)
        shards = find_shards(path)
        if shards:
            return read_shards(shards, name=printable(path), labelled=not unlabelled)
        domain = _open_path(path, folder) or _open_named(text, folder)
    return domain.unlabelled() if unlabelled else domain


def open_domains(
    sources: Sequence[Location | Domain],
    targets: Sequence[Location | Domain],
    *,
    data: Location | None = None,
    unlabelled: bool = False,
    classes: Sequence[str] = (),
) -> tuple[tuple[LabelledDomain, ...], tuple[Domain, ...]]:
    """Returns sources and targets, all in one numbering of the classes.

    The classes are the union of the sources', or `classes` without a source. Labels of targets are
    for scoring.

    Raises:
        DialError: a source without two classes, a target with classes that no source has (unless
            `unlabelled`), or the same images twice.
    """
    opened = share_classes([as_source(open_domain(source, data=data)) for source in sources])
    scored, classes = [], opened[0].labels.classes if opened else classes
    for target in targets:
        domain = open_domain(target, data=data, unlabelled=unlabelled)
        scored.append(
            replace(domain, labels=domain.labels.onto(classes) if domain.labels else None)
        )
    _require_different(opened, "sources that differ", "name each source once")
    wanted = f"a target other than the source{'' if len(opened) == 1 else 's'}"
    fix = "name the folder of the images that the classifier should work on"
    for domain in scored:
        _require_different([*opened, domain], wanted, fix)
    _require_different(scored, "targets that differ", "name each target once")
    return tuple(opened), tuple(scored)


def open_pair(
    source: Location | Domain,
    target: Location | Domain,
    *,
    data: Location | None = None,
    unlabelled: bool = False,
) -> tuple[LabelledDomain, Domain]:
    """Returns one source and one target, as `open_domains` does."""
    (first,), (second,) = open_domains([source], [target], data=data, unlabelled=unlabelled)
    return first, second


def _require_different(domains: Sequence[Domain], wanted: str, fix: str) -> None:
    names: dict[tuple[str | int, ...], str] = {}
    for domain in domains:
        if domain.images.identity in names:
            raise DialError(wanted=wanted, got=f"{domain.name} for both", fix=fix)
        names[domain.images.identity] = domain.name


def _open_path(path: Path, data: Path | None) -> Domain | None:
    # os.path answers False where Path raises: names that are too long or cannot exist.
    if os.path.isdir(path):
        return read_folder(path)
    if not os.path.exists(path):
        return None
    if is_device(path):
        raise DialError(
            wanted="a folder of images, an image, or a file that lists images",
            got=f"{printable(path)}, a pipe or a device, which cannot be read twice",
            fix="write the list to a file, and name that",
        )
    if is_image_name(path):
        return Domain(printable(path), ImageFiles((path,)))
    listed = read_list(path, data=data)
    return _embedded(listed, data) or listed


def _embedded(listed: Domain, data: Path | None) -> Domain | None:
    """Returns listed images that are no files but rows of a data set: `digits:mnist/17`."""
    paths = listed.images.paths if isinstance(listed.images, ImageFiles) else ()
    place = paths[0].parent.name if paths else ""
    if place.partition(":")[0] not in names() or os.path.exists(paths[0]):
        return None
    if any(path.parent.name != place for path in paths):
        return None
    domain = _open_named(place, data)
    rows = [int(path.name) for path in paths if path.name.isdecimal()]
    if len(rows) < len(paths) or max(rows) >= len(domain.images):
        raise DialError(
            wanted=f"rows of {place} from 0 to {len(domain.images) - 1} in {listed.name}",
            got="others",
            fix=f"write {place}/0 for the first image",
        )
    return replace(listed, images=domain.images.take(rows))


def _open_named(text: str, data: Path | None) -> Domain:
    name, colon, domain = text.partition(":")
    if not colon or os.sep in name:
        raise DialError(
            wanted="a folder of images, an image list, or data_set:domain like office31:amazon",
            got=f"{printable(text)!r}, which does not exist",
            fix="check the path; `dial list datasets` shows the data sets",
        )
    data_set = get(name)
    if domain not in data_set.domains:
        raise DialError(
            wanted=f"a domain of {name} ({', '.join(data_set.domains)})",
            got=repr(domain),
            fix=f"write {name}:{data_set.domains[0]}",
        )
    return data_set.load(domain, data)
