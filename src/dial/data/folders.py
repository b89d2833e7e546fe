"""Domains on disk: class folders, Office-31's layouts, flat folders and lists; archives by name."""

import csv
import glob
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from dial.data.decode import SUFFIXES, UNSUPPORTED_SUFFIXES
from dial.data.domain import Domain, ImageFiles, Labels, abbreviate
from dial.data.hand_labels import HandLabels, read_hand_labels
from dial.data.path_table import PathTable
from dial.errors import DialError
from dial.files import printable

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_PREDICTIONS = ["path", "label", "confidence"]  # how the columns of `dial predict` begin
_PREDICTED = (
    "its labels are predictions; if somebody has corrected them all, remove the column confidence"
)
_LITTER = ("thumbs.db", "desktop.ini", "ehthumbs.db", "__macosx", "icon\r")


def is_image_name(path: Path) -> bool:
    """Whether a file's suffix is that of an image, in a format that is read here or another."""
    return path.suffix.lower() in SUFFIXES + UNSUPPORTED_SUFFIXES


def is_litter(name: str) -> bool:
    """Whether a file is hidden, or one that operating systems leave in folders.

    >>> [is_litter(name) for name in ("Thumbs.db", ".DS_Store", "__MACOSX", "cat.jpg")]
    [True, True, True, False]
    """
    return name.startswith(".") or name.lower() in _LITTER


def is_archive_name(path: Path) -> bool:
    """Whether a file's name is that of a tar archive, compressed or not.

    >>> [is_archive_name(Path(n)) for n in ("a-0.tar", "a.tar.gz", "a.tgz", "a.jpg")]
    [True, True, True, False]
    """
    return re.search(r"\.(tar|tgz|tar\.(gz|bz2|xz|zst))$", path.name.lower()) is not None


def find_shards(path: Path) -> list[Path]:
    """Returns the archives that a path stands for: a file, a folder of them, or a pattern.

    A folder stands for archives if it holds no images and no folders beside them. A pattern has
    braces, `shards-{0000..0099}.tar`, or `*` and `?`. No archives for any other path.

    Raises:
        DialError: a pattern of archives that are not there.
    """
    if os.path.isdir(path):  # answers False where Path raises
        with suppress(OSError):  # which is said where folders are read
            entries = sorted(entry for entry in path.iterdir() if not is_litter(entry.name))
            if not any(entry.is_dir() or is_image_name(entry) for entry in entries):
                return [entry for entry in entries if is_archive_name(entry)]
        return []
    if not is_archive_name(path):
        return []
    text = str(path)
    if os.path.exists(path):
        return [path]
    if not _BRACES.search(text) and not glob.has_magic(text):
        return []
    texts = [text]
    while any(_BRACES.search(each) for each in texts):
        texts = [made for each in texts for made in _expand(each)]
    found = [sorted(glob.glob(each)) if glob.has_magic(each) else [each] for each in texts]
    shards = [Path(each) for part in found for each in part]
    missing = [shard for shard in shards if not shard.is_file()]
    if missing or not shards:
        raise DialError(
            wanted=f"archives {printable(path)}",
            got=f"{len(missing)} of {len(shards)} that are not there: {abbreviate(missing, 3)}"
            if shards
            else "none",
            fix="check the numbers and the path",
        )
    return shards


def _expand(text: str) -> Iterator[str]:
    """Yields a text once for each number of its first braces."""
    match = _BRACES.search(text)
    if match is None:
        yield text
        return
    first, last = match.groups()
    for number in range(int(first), int(last) + 1):
        yield f"{text[: match.start()]}{number:0{len(first)}}{text[match.end() :]}"


def read_folder(root: Path, *, name: str | None = None) -> Domain:
    """Returns the images below `root`; its folders are classes if every image lies in one.

    A folder that holds only a folder `images` (Office-31) stands for that folder. Images directly
    in `root` make it a flat, unlabelled domain, whatever its folders are called.
    """
    name = name or printable(root)
    base = _base(root)
    files = sorted(_walk(base), key=lambda path: path.parts)
    paths = tuple(filter(is_image_name, files))
    other = Counter(file.suffix.lower() or "no suffix" for file in files if not is_image_name(file))
    notes: list[str] = []
    if not paths:
        raise DialError(
            wanted=f"images in {printable(root)}",
            got=f"none, only other files ({_tally(other)})" if other else "none, no files at all",
            fix="point to a folder with .jpg, .png, .bmp, .webp, .tif or .gif files in or below it",
        )
    if other:
        notes.append(f"{other.total()} files are not images and were ignored: {_tally(other)}")
    folders = [path.relative_to(base).parts[0] for path in paths if path.parent != base]
    loose = len(paths) - len(folders)
    if loose:
        if folders:
            notes.append(f"{loose} images lie outside the folders, so the folders are not classes")
        return Domain(name, ImageFiles(paths), None, tuple(notes))
    content = (entry for entry in base.iterdir() if entry.is_dir() and not is_litter(entry.name))
    empty = sorted({entry.name for entry in content} - set(folders))
    if empty:
        notes.append(f"{len(empty)} folders hold no images: {abbreviate(empty)}")
    labels = Labels.from_names([printable(folder) for folder in folders])
    return Domain(name, ImageFiles(paths), labels, tuple(notes))


def _base(root: Path) -> Path:
    try:
        content = [entry for entry in root.iterdir() if not is_litter(entry.name)]
        inner = [entry for entry in content if entry.is_dir()]
    except OSError as error:
        raise DialError(
            wanted=f"a folder of images at {printable(root)}",
            got=error.strerror or str(error),
            fix="check the spelling and the permissions",
        ) from error
    loose = any(entry not in inner and is_image_name(entry) for entry in content)
    return inner[0] if len(inner) == 1 and inner[0].name == "images" and not loose else root


def _walk(base: Path) -> Iterator[Path]:
    """Yields every file below `base` but litter; follows links, but not in circles."""
    errors: list[OSError] = []
    above: dict[str, frozenset[str]] = {str(base): frozenset()}
    for folder, folders, files in os.walk(base, followlinks=True, onerror=errors.append):
        here = above.pop(folder) | {os.path.realpath(folder)}
        folders[:] = [
            child
            for child in folders
            if not is_litter(child) and os.path.realpath(os.path.join(folder, child)) not in here
        ]
        above.update({os.path.join(folder, child): here for child in folders})
        yield from (Path(folder, file) for file in files if not is_litter(file))
    if errors:
        folders = [f"{printable(str(error.filename))} ({error.strerror})" for error in errors]
        raise DialError(
            wanted=f"folders that can be read in {printable(base)}",
            got=f"{len(errors)} that cannot: {abbreviate(folders)}",
            fix="change their permissions or remove them",
        )


def _tally(other: Counter[str]) -> str:
    return abbreviate([f"{count} {suffix}" for suffix, count in sorted(other.items())])


def read_list(file: Path, *, data: Path | None = None) -> Domain:
    """Returns the images that a text file lists, one a line: `path label`, or only `path`.

    It may also be a table with commas whose first line names its columns, `path` and `label` among
    them, such as `dial predict` and the page of `dial label` write; of the latter, images that
    could not be told are left out. Paths are relative to `data` if given, else to the list's
    folder, the one above it, or the current one, whichever holds the first image. Blank lines are
    skipped. A missing image is a bad file later.
    """
    roots = [data] if data else [file.parent, file.parent.parent, Path()]
    first = next(_lines(file))[1]
    if "path" in _columns(first):
        return _read_table(file, roots)
    root, labelled = _layout(first, roots)
    numbers: dict[str, int] = {}  # of labels, in the order in which they come
    which = array("q")

    def paths() -> Iterator[str]:  # one after the other, for a list may have millions
        for number, line in _lines(file):
            path, label = _split(line) if labelled else (line, "")
            if labelled:
                _require_label(label, file, number, line)
                which.append(numbers.setdefault(label, len(numbers)))
            yield path

    images = ImageFiles(PathTable.of(paths(), root))
    if not labelled:
        return Domain(printable(file), images)
    distinct = Labels.from_names([*numbers])
    indices = distinct.indices[np.array(which, dtype=np.int64)]
    return Domain(printable(file), images, Labels(distinct.classes, indices))


def _require_label(label: str, file: Path, number: int, line: str) -> None:
    if not label:
        raise DialError(
            wanted=f"a path and a label on every line of {printable(file)}, as on its first",
            got=f"line {number}: {line!r}",
            fix="give every image a label, or none",
        )


def _columns(header: str) -> list[str]:
    """Returns what a table's first line calls its columns."""
    return [name.strip().lower() for name in next(csv.reader([header]))]


def _read_table(file: Path, roots: list[Path]) -> Domain:
    """Returns the images of a table with commas."""
    lines = [*_lines(file)]
    notes: tuple[str, ...] = ()
    is_predicted = _columns(lines[0][1])[: len(_PREDICTIONS)] == _PREDICTIONS
    lines, pairs, labelled, by_hand = _table(lines, file)
    if is_predicted:
        labelled, notes = False, (_PREDICTED,)
    root = next((root for root in roots if os.path.exists(root / pairs[0][0])), roots[0])
    for (number, line), (_, label) in zip(lines, pairs, strict=True):
        if labelled:
            _require_label(label, file, number, line)
    images = ImageFiles(PathTable.of((path for path, _ in pairs), root))
    labels = Labels.from_names([label for _, label in pairs]) if labelled else None
    return Domain(printable(file), images, labels, notes, by_hand)


def _table(
    lines: list[tuple[int, str]], file: Path
) -> tuple[list[tuple[int, str]], list[tuple[str, str]], bool, HandLabels | None]:
    """Returns the lines of a table with their paths and labels, and whether it has labels.

    Last comes how they were given, if it was on a page of `dial label`.
    """
    columns, rows = _columns(lines[0][1]), [*csv.reader([line for _, line in lines])][1:]
    numbers = [number for number, _ in lines[1:]]
    odd = [n for n, row in zip(numbers, rows, strict=False) if len(row) != len(columns)]
    if odd or not rows or len(rows) != len(numbers):
        raise DialError(
            wanted=f"images in {printable(file)}, each with {', '.join(columns)} on a line",
            got=f"{'more or fewer cells in' if odd else 'none after'} line {(odd or [1])[0]}",
            fix="give every image a line of its own; quote cells that have commas in them",
        )
    place, label = (columns.index(n) if n in columns else None for n in ("path", "label"))
    pairs = [(row[place or 0].strip(), "" if label is None else row[label].strip()) for row in rows]
    kept, by_hand = lines[1:], None
    if (found := read_hand_labels(columns, rows, file)) is not None:
        by_hand, good = found
        kept, pairs = [kept[row] for row in good], [pairs[row] for row in good]
    return kept, pairs, label is not None, by_hand


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines that are not blank, with their numbers."""
    wanted = f"an image list in {printable(file)}: text with `path label` lines"
    is_empty = True
    try:
        with file.open(encoding="utf-8-sig") as text:
            lines = (line for long in text for line in long.splitlines())
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    is_empty = False
                    yield number, line.strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DialError(
            wanted=wanted,
            got=str(error) if isinstance(error, OSError) else "a file that is not UTF-8 text",
            fix="name a folder of images, an image, or a text file that lists images",
        ) from error
    if is_empty:
        fix = "write the path of an image and its label on every line"
        raise DialError(wanted=wanted, got="an empty file", fix=fix)


def _layout(first: str, roots: list[Path]) -> tuple[Path, bool]:
    """Returns the folder that the paths are relative to, and whether the lines have labels.

    Names may contain spaces, so the file system decides: what exists is a path. If nothing does,
    a line of several words has a label.
    """
    path, label = _split(first)
    for root in roots:
        if os.path.exists(root / first):  # answers False where Path raises
            return root, False
        if label and os.path.exists(root / path):
            return root, True
    return roots[0], bool(label)


def _split(line: str) -> tuple[str, str]:
    """Returns path and label; the label is the last word, or all that follows the last tab.

    >>> _split("my photos/mug 1.jpg coffee_mug"), _split("mug.jpg")
    (('my photos/mug 1.jpg', 'coffee_mug'), ('mug.jpg', ''))
    """
    path, *label = line.rsplit("\t" if "\t" in line else None, maxsplit=1)
    return path.strip(), label[0].strip() if label else ""
