"""The images that a finished run was made for, found again from what its config.json says."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dial.data.datasets import open_domain
from dial.data.decode import Member, digest
from dial.data.domain import Domain, ImageArray, Images, StoredImages
from dial.deployment.runs import Run
from dial.errors import DialError
from dial.training.job import absolute
from dial.training.run_folder import read_config

Location = str | os.PathLike[str]


def open_target(
    run: Run, images: Location | None = None, *, data: Location | None = None
) -> Domain:
    """Returns the images of a run's target, each once and without labels.

    Args:
        run: a finished run, of one target.
        images: where they are; by default where they were when the run was made.
        data: the folder that holds the known data sets; by default the run's.

    Raises:
        DialError: they are not there.
    """
    config = read_config(run.folder / "config.json")
    data = data if data is not None else config.get("input", {}).get("data")
    if images is not None:
        domain = open_domain(absolute(images) or images, data=data)
    else:
        domain = _reopen(run, _place(run, config), data)
    return Domain(domain.name, domain.images.distinct())


def _reopen(run: Run, place: str | None, data: Location | None) -> Domain:
    gone = "images that were passed as an object"
    if place is not None:
        try:
            return open_domain(place, data=data)
        except DialError as error:
            gone = error.got
    raise DialError(
        wanted=f"the target images of the run in {run.folder}",
        got=gone,
        fix="name the folder of these images as IMAGES: dial label RUN IMAGES",
    )


def _place(run: Run, config: dict[str, Any]) -> str | None:
    """Returns the place of the target as it was given; None if it was an object."""
    place = config.get("input", config).get("target")
    if isinstance(place, list):  # of several targets, whose folders lie in that of the run
        path = run.folder.parent / "config.json"
        names = dict(zip(read_config(path).get("target", ()), place, strict=False))
        place = names.get(config.get("target"))
    return None if place is None else str(place)


def rows_with_known_labels(run: Run, images: Images) -> set[int]:
    """Returns the rows of images whose labels took part in the run's training.

    Raises:
        DialError: the images or the table that the run was given are not there any more.
    """
    given = read_config(run.folder / "config.json").get("input", {})
    if given.get("labelled") is None:
        return set()
    try:
        labelled = open_domain(given["labelled"], data=given.get("data"))
    except DialError as error:
        raise DialError(
            wanted="the labelled images that took part in the training of the run, to leave them "
            "out",
            got=error.got,
            fix=f"bring {given['labelled']} back",
        ) from error
    return _copies(images, labelled.images)


def _copies(images: Images, others: Images) -> set[int]:
    """Returns the rows of images that are among the others, by their content."""
    if isinstance(images, ImageArray) and isinstance(others, ImageArray):
        known = {pixels.tobytes() for pixels in others.pixels}
        return {row for row, pixels in enumerate(images.pixels) if pixels.tobytes() in known}
    if isinstance(images, ImageArray) or isinstance(others, ImageArray):
        return set()
    there = dict(_files(others)).values()
    sizes = {_size(file) for file in there}
    contents = {_content(file) for file in there}
    return {
        row for row, file in _files(images) if _size(file) in sizes and _content(file) in contents
    }


def _files(images: StoredImages) -> Iterator[tuple[int, Path | Member]]:
    """Yields the rows of images that are there, and where they are."""
    files = ((row, images[row]) for row in range(len(images)))
    yield from ((row, file) for row, file in files if isinstance(file, Member) or file.is_file())


def _size(file: Path | Member) -> int:
    return file.size if isinstance(file, Member) else file.stat().st_size


def _content(file: Path | Member) -> bytes:
    return digest(file.read() if isinstance(file, Member) else file.read_bytes())
