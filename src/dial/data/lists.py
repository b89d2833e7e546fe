"""Domains from image-list text files: a path and, behind it, a label on every line."""

from pathlib import Path

from dial.data.domain import Domain, ImageFiles, Labels
from dial.data.folders import shown
from dial.errors import DialError


def read_list(file: Path, *, name: str | None = None, data: Path | None = None) -> Domain:
    """The images that `file` lists, `path label` or only `path` a line; blank lines are skipped.

    Paths are relative to `data` if given, else to the list's folder, else to the folder above it,
    whichever holds the first image. A file that is missing counts as a bad file later on.
    """
    lines = _lines(file)
    roots = [data] if data else [file.parent, file.parent.parent]
    root, labelled = _layout(lines[0][1], roots)
    paths: list[Path] = []
    names: list[str] = []
    for number, line in lines:
        path, label = _split(line) if labelled else (line, "")
        if labelled and not label:
            raise DialError(
                wanted=f"a path and a label on every line of {shown(file)}, as on its first",
                got=f"line {number}: {line!r}",
                fix="give every image a label, or none",
            )
        paths.append(root / path)
        names.append(label)
    labels = Labels.from_names(names) if labelled else None
    return Domain(name or shown(file), ImageFiles(tuple(paths)), labels)


def _lines(file: Path) -> list[tuple[int, str]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DialError(
            wanted=f"an image list in {shown(file)}: text with `path label` lines",
            got=str(error) if isinstance(error, OSError) else "a file that is not UTF-8 text",
            fix="name a folder of images, an image, or a text file that lists images",
        ) from error
    numbered = enumerate(text.splitlines(), start=1)
    lines = [(number, line.strip()) for number, line in numbered if line.strip()]
    if not lines:
        raise DialError(
            wanted=f"an image list in {shown(file)}: text with `path label` lines",
            got="an empty file",
            fix="write the path of an image and its label on every line",
        )
    return lines


def _layout(first: str, roots: list[Path]) -> tuple[Path, bool]:
    """The folder that the paths are relative to, and whether labels follow them.

    Names may hold spaces, so the file system decides: what exists is a path. Where nothing does,
    a line of several words is taken as labelled.
    """
    path, label = _split(first)
    for root in roots:
        if (root / first).exists():
            return root, False
        if label and (root / path).exists():
            return root, True
    return roots[0], bool(label)


def _split(line: str) -> tuple[str, str]:
    """Path and label; the label is the last word, or all that follows the last tab.

    >>> _split("my photos/mug 1.jpg coffee_mug"), _split("mug.jpg")
    (('my photos/mug 1.jpg', 'coffee_mug'), ('mug.jpg', ''))
    """
    path, *label = line.rsplit("\t" if "\t" in line else None, maxsplit=1)
    return path.strip(), label[0].strip() if label else ""
