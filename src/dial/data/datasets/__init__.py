"""Known data sets, one file each, and the one way to open a domain by what a user writes.

A data set is a module with `DOMAINS`, the names of its domains, and `load(domain, data)`, which
gives a `Domain`; the first line of its docstring describes it. Its file's name is its name.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from dial import registry
from dial.data.domain import Domain, ImageFiles, listed, scoring_labels
from dial.data.folders import is_image_name, read_folder, shown
from dial.data.lists import read_list
from dial.errors import DialError


class DataSet(Protocol):
    """What a data set's module offers."""

    DOMAINS: tuple[str, ...]

    def load(self, domain: str, data: Path | None) -> Domain:
        """Open one of `DOMAINS`, below the folder `data` if it lies on disk."""


def names() -> tuple[str, ...]:
    """The data sets that there are.

    >>> names()
    ('digits', 'office31', 'office_caltech')
    """
    return registry.names(sys.modules[__name__])


def get(name: str) -> DataSet:
    """A data set by its name; a `DialError` lists those there are if it is none of them."""
    return cast(DataSet, registry.load(sys.modules[__name__], name))


def describe(name: str) -> dict[str, str]:
    """A data set's name, its domains and its docstring's first line, for a table."""
    data_set = get(name)
    about = (data_set.__doc__ or "").partition("\n")[0]
    return {"data set": name, "domains": ", ".join(data_set.DOMAINS), "about": about}


def open_domain(
    specification: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    unlabelled: bool = False,
) -> Domain:
    """The domain that a user means by a path or by `data_set:domain`.

    A path is a folder of images (class folders or flat), a text file that lists images, or one
    image. Whatever exists on disk is a path, also with a colon in its name. `unlabelled` leaves
    out the labels that the layout implies.
    """
    text = os.fspath(specification)
    folder = Path(data).expanduser() if data is not None else None
    path = Path(os.path.expanduser(text))
    domain = _open_path(path, folder) or _open_named(text, folder)
    return domain.unlabelled() if unlabelled else domain


def open_pair(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    unlabelled: bool = False,
) -> tuple[Domain, Domain]:
    """Source and target for a run; the target's labels, if any, are in the source's numbering.

    Raises:
        DialError: a source without two classes, a target with classes that the source does not
            have (but not if `unlabelled`), or one that is the source itself.
    """
    first = open_domain(source, data=data)
    second = open_domain(target, data=data, unlabelled=unlabelled)
    labels = scoring_labels(first, second)
    if _identity(first) == _identity(second):
        raise DialError(
            wanted="a target other than the source",
            got=f"{first.name} for both",
            fix="name the folder of the images that the classifier should work on",
        )
    return first, replace(second, labels=labels)


def _identity(domain: Domain) -> tuple[str | int, ...]:
    if not isinstance(domain.images, ImageFiles):
        return (domain.name,)
    paths = domain.images.paths  # sorted, so the ends and the number tell
    return len(paths), os.path.realpath(paths[0]), os.path.realpath(paths[-1])


def _open_path(path: Path, data: Path | None) -> Domain | None:
    # os.path answers False where Path raises: names that are too long or cannot exist.
    if os.path.isdir(path):
        return read_folder(path)
    if not os.path.exists(path):
        return None
    if is_image_name(path):
        return Domain(shown(path), ImageFiles((path,)))
    return read_list(path, data=data)


def _open_named(text: str, data: Path | None) -> Domain:
    name, colon, domain = text.partition(":")
    if not colon or os.sep in name:
        raise DialError(
            wanted="a folder of images, an image list, or data_set:domain like office31:amazon",
            got=f"{text!r}, which does not exist",
            fix="check the path; `dial list datasets` shows the data sets",
        )
    data_set = get(name)
    if domain not in data_set.DOMAINS:
        raise DialError(
            wanted=f"a domain of {name} ({listed(data_set.DOMAINS)})",
            got=repr(domain),
            fix=f"write {name}:{data_set.DOMAINS[0]}",
        )
    return data_set.load(domain, data)
