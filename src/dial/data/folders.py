"""Domains from folders: class folders, Office-31's layouts, flat folders, single images."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dial.data.domain import Domain, ImageFiles, Labels, listed
from dial.errors import DialError

READ_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".webp"),
    *(".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm", ".pnm"),
)
# Photos for sure, but not in a format that we read: they are reported, not passed over.
FOREIGN_SUFFIXES = (
    *(".heic", ".heif", ".avif", ".jp2", ".jxl", ".svg", ".psd", ".ico"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2"),
)
_LITTER = ("thumbs.db", "desktop.ini", "ehthumbs.db", "__macosx", "icon\r")


def is_image_name(path: Path) -> bool:
    """Whether a file's name promises an image, in a format that we read or in another."""
    return path.suffix.lower() in READ_SUFFIXES + FOREIGN_SUFFIXES


def is_litter(name: str) -> bool:
    """Whether a name is hidden or left behind by an operating system.

    >>> [is_litter(name) for name in ("Thumbs.db", ".DS_Store", "__MACOSX", "cat.jpg")]
    [True, True, True, False]
    """
    return name.startswith(".") or name.lower() in _LITTER


def read_folder(root: Path, *, name: str | None = None) -> Domain:
    """The images below `root`; its folders are their classes, if every image lies in one.

    A folder whose only content is a folder `images` (Office-31) stands for that folder. Images
    directly in `root` make it a flat, unlabelled domain, whatever its folders are called.
    """
    name = name or shown(root)
    base = _base(root)
    paths: list[Path] = []
    notes: list[str] = []
    other: Counter[str] = Counter()
    for path in _walk(base):
        if is_image_name(path):
            paths.append(path)
        else:
            other[path.suffix.lower() or "no suffix"] += 1
    if not paths:
        raise DialError(
            wanted=f"images in {shown(root)}",
            got="none"
            + (f", only other files ({_tally(other)})" if other else ", no files at all"),
            fix="point to a folder with .jpg, .png, .bmp, .webp, .tif or .gif files in or below it",
        )
    paths.sort(key=lambda path: path.parts)
    if other:
        notes.append(f"{other.total()} files are not images and were passed over: {_tally(other)}")
    folders = [path.relative_to(base).parts[0] for path in paths if path.parent != base]
    loose = len(paths) - len(folders)
    if loose:
        if folders:
            notes.append(f"{loose} images lie outside the folders, so the folders are not classes")
        return Domain(name, ImageFiles(tuple(paths)), None, tuple(notes))
    empty = sorted({folder.name for folder in _folders(base)} - set(folders))
    if empty:
        notes.append(f"{len(empty)} folders hold no images: {listed(empty)}")
    labels = Labels.from_names([display(folder) for folder in folders])
    return Domain(name, ImageFiles(tuple(paths)), labels, tuple(notes))


def display(text: str) -> str:
    """A file name as text that can be printed, also where its bytes are not UTF-8."""
    return os.fsencode(text).decode("utf-8", "replace")


def shown(path: Path) -> str:
    """A path as text that can be printed."""
    return display(str(path))


def _base(root: Path) -> Path:
    try:
        content = [entry for entry in root.iterdir() if not is_litter(entry.name)]
    except OSError as error:
        raise DialError(
            wanted=f"a folder of images at {shown(root)}",
            got=error.strerror or str(error),
            fix="check the spelling and the permissions",
        ) from error
    inner = [entry for entry in content if entry.is_dir()]
    loose = any(entry not in inner and is_image_name(entry) for entry in content)
    return inner[0] if len(inner) == 1 and inner[0].name == "images" and not loose else root


def _folders(base: Path) -> list[Path]:
    return [entry for entry in base.iterdir() if entry.is_dir() and not is_litter(entry.name)]


def _walk(base: Path) -> Iterator[Path]:
    """Every file below `base` that is no litter; links are followed, but not round in circles."""
    closed: list[OSError] = []
    above: dict[str, frozenset[str]] = {str(base): frozenset()}
    for folder, folders, files in os.walk(base, followlinks=True, onerror=closed.append):
        here = above.pop(folder) | {os.path.realpath(folder)}
        folders[:] = [
            child
            for child in folders
            if not is_litter(child) and os.path.realpath(os.path.join(folder, child)) not in here
        ]
        above.update({os.path.join(folder, child): here for child in folders})
        yield from (Path(folder, file) for file in files if not is_litter(file))
    if closed:
        folders = [f"{display(str(error.filename))} ({error.strerror})" for error in closed]
        raise DialError(
            wanted=f"folders that can be read in {shown(base)}",
            got=f"{len(closed)} that cannot: {listed(folders)}",
            fix="change their permissions or take them out",
        )


def _tally(other: Counter[str]) -> str:
    return listed([f"{count} {suffix}" for suffix, count in sorted(other.items())])
