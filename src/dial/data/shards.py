"""Domains in tar archives in the layout of WebDataset: an image, and beside it its label.

One pass over the headers finds every image by archive, offset and size. Nothing is unpacked.
"""

import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from dial.data.decode import SUFFIXES, UNSUPPORTED_SUFFIXES
from dial.data.domain import Domain, Labels, abbreviate
from dial.data.folders import is_litter
from dial.data.members import ImageMembers
from dial.errors import DialError
from dial.files import printable
from dial.files.records import parse_json

_CLASSES = "classes.txt"
_LABELS = (".cls", ".json")  # of two, the first counts
_LONGEST_LABEL, _LONGEST_NAME, _SHOWN = 1 << 20, 1000, 80
_ODD = re.compile("[\x00-\x1f\ud800-\udfff]")  # of names: control codes, bytes that are not UTF-8
_BLOCK = 512
# What tarfile trips over in headers that claim huge sizes, or that stand for each other in turn.
_DAMAGED = (tarfile.TarError, ValueError, ArithmeticError, MemoryError, RecursionError)
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


class _Entry(NamedTuple):
    """An image in an archive."""

    name: str
    offset: int
    size: int
    label: str | None


def read_shards(shards: Sequence[Path], *, name: str, labelled: bool = True) -> Domain:
    """Returns the images of archives, in their order there, with labels if all have one.

    Args:
        shards: the archives.
        name: the domain's.
        labelled: whether labels are of interest; if not, none is read.

    Raises:
        DialError: an archive that cannot be read as it should be, or an image without a label
            beside others that have one.
    """
    if len(set(shards)) < len(shards):
        twice = [shard for shard, count in Counter(shards).items() if count > 1]
        raise DialError(
            wanted=f"each archive of {name} once",
            got=f"{abbreviate(map(printable, twice), 3)} twice",
            fix="correct the pattern",
        )
    names: list[np.ndarray[Any, np.dtype[np.bytes_]]] = []
    places: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    numbers: dict[str | None, int] = {}  # of labels, in the order in which they come
    labels: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    ignored: Counter[str] = Counter()
    for number, shard in enumerate(shards):
        entries = _index(shard, ignored, labelled=labelled)
        names.append(np.array([entry.name.encode() for entry in entries], dtype=np.bytes_))
        places.append(np.array([(number, e.offset, e.size) for e in entries], dtype=np.int64))
        found = [numbers.setdefault(entry.label, len(numbers)) for entry in entries]
        labels.append(np.array(found, dtype=np.int64))
    joined = np.concatenate([part.reshape(-1, 3) for part in places])
    if not len(joined):
        raise DialError(
            wanted=f"images in the archives of {name}",
            got=f"none, only other files ({_tally(ignored)})" if ignored else "none",
            fix="write each image as KEY.jpg or KEY.png, and its label as KEY.cls",
        )
    keys = np.concatenate([part for part in names if len(part)])
    notes = (f"{ignored.total()} files are not images and were ignored: {_tally(ignored)}",)
    images = ImageMembers(tuple(shards), keys, joined)
    texts, which = [*numbers], np.concatenate(labels)
    if texts == [None]:
        return Domain(name, images, None, notes if ignored else ())
    if None in numbers:
        rows = np.flatnonzero(which == numbers[None])
        raise DialError(
            wanted=f"a label for each image of {name}, as KEY.cls or as `label` in KEY.json",
            got=f"{len(rows)} of {len(images)} without: "
            f"{abbreviate([images.names[row] for row in rows[:3]])}",
            fix="add the labels; for a target, pass --unlabelled to go on without any",
        )
    classes = _named([str(text) for text in texts], shards)
    distinct = Labels.from_names(classes)
    labels_of = Labels(distinct.classes, distinct.indices[which])
    return Domain(name, images, labels_of, notes if ignored else ())


def _tally(ignored: Counter[str]) -> str:
    return abbreviate([f"{count} {suffix}" for suffix, count in sorted(ignored.items())])


def _named(labels: Sequence[str], shards: Iterable[Path]) -> list[str]:
    """Returns labels as names of classes: numbers count the lines of a classes.txt beside."""
    files = sorted({shard.parent / _CLASSES for shard in shards})
    there = [file for file in files if file.is_file()]
    if not there:
        return [*labels]
    try:
        texts = {file.read_text(encoding="utf-8-sig").strip() for file in there}
        names = [line.strip() for line in texts.pop().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_classes(there[0], str(error)) from error
    if texts or not all(names) or len(set(names)) < len(names):
        raise _bad_classes(there[0], "files that differ" if texts else "empty or equal lines")
    found = []
    for label in labels:
        is_number = label.isascii() and label.isdecimal()
        if is_number and int(label) >= len(names):
            raise _bad_classes(there[0], f"the label {label}, which only {len(names)} lines have")
        found.append(names[int(label)] if is_number else label)
    return found


def _bad_classes(file: Path, got: str) -> DialError:
    return DialError(
        wanted=f"the name of each class on a line of its own in {printable(file)}, from 0 on",
        got=got,
        fix="correct the file, or remove it and the labels are the names",
    )


def _index(shard: Path, ignored: Counter[str], *, labelled: bool) -> list[_Entry]:
    """Returns the images of one archive; counts other files by their suffix."""
    images: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    try:
        with open(shard, "rb") as stream:
            _refuse_compressed(shard, stream)
            for member, archive in _members(shard, stream):
                key, suffix = _split(member.name)
                if member.name in seen or (suffix in SUFFIXES and key in images):
                    raise _unsound(shard, f"two files {member.name}", "write each KEY once")
                seen.add(member.name)
                if suffix in SUFFIXES + UNSUPPORTED_SUFFIXES:
                    images[key] = member.name, member.offset_data, member.size
                elif suffix not in _LABELS:
                    ignored[suffix or "no suffix"] += 1
                elif labelled:
                    content = archive.extractfile(member)
                    text = content.read(_LONGEST_LABEL) if content else b""
                    labels.setdefault(key, {})[suffix] = _label(shard, member.name, text)
    except OSError as error:
        raise DialError(
            wanted=f"a tar archive at {printable(shard)}",
            got=error.strerror or str(error),
            fix="check the path and the permissions",
        ) from error
    found = []
    for key, (name, offset, size) in images.items():
        beside = labels.get(key, {})
        label = next((beside[suffix] for suffix in _LABELS if suffix in beside), None)
        found.append(_Entry(name, offset, size, label))
    return found


def _members(shard: Path, stream: BinaryIO) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Yields the files of an archive; refuses what is no plain file, and an archive without end."""
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            size = os.fstat(stream.fileno()).st_size
            for member in archive:
                _refuse_odd(shard, member)
                if not 0 <= member.size <= size - member.offset_data:
                    raise tarfile.ReadError("unexpected end of data")
                if member.isreg() and not is_litter(PurePosixPath(member.name).name):
                    yield member, archive
            stream.seek(archive.offset)
            if stream.read(_BLOCK) != bytes(_BLOCK):  # tarfile takes it for the end
                raise tarfile.ReadError("unexpected end of data")
    except DialError:
        raise
    except _DAMAGED as error:
        raise _unsound(
            shard, f"a truncated or damaged one ({error})", "copy it again, or write it again"
        ) from error


def _refuse_odd(shard: Path, member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()) or member.issparse():
        kind = "a link" if member.islnk() or member.issym() else "something else than a file"
        raise _unsound(shard, f"{kind}, {member.name}", "write the files themselves")
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise _unsound(shard, f"the name {member.name!r}", "write names that lie in the archive")
    if len(member.name) > _LONGEST_NAME or _ODD.search(member.name):
        name = repr(member.name[:_SHOWN])
        raise _unsound(shard, f"the name {name}", "write shorter names, in UTF-8")


def _refuse_compressed(shard: Path, stream: BinaryIO) -> None:
    start = stream.read(8)
    stream.seek(0)
    for magic, kind in _COMPRESSED.items():
        if start.startswith(magic):
            raise _unsound(
                shard,
                f"one that is compressed with {kind}",
                "decompress it: images in it are compressed already, and must be found by place",
            )


def _split(name: str) -> tuple[str, str]:
    """Returns the key of a file, which its label shares, and its suffix.

    >>> _split("train/000001.jpg"), _split("a.b/000001.seg.PNG")
    (('train/000001', '.jpg'), ('a.b/000001', '.seg.png'))
    """
    path = PurePosixPath(name)
    stem, dot, suffix = path.name.partition(".")
    return str(path.with_name(stem)), (dot + suffix).lower()


def _label(shard: Path, name: str, content: bytes) -> str:
    """Returns what a .cls or .json file says about the class of its image."""
    label: Any = None
    try:
        label = content.decode("utf-8-sig").strip()
        if name.lower().endswith(".json"):
            label = parse_json(label, dict[str, Any]).get("label")
    except ValueError:
        label = None
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise _unsound(
            shard,
            f"no label in {name}",
            "write the class, a name or a number, as text in KEY.cls or as `label` in KEY.json",
        )
    return str(label).strip()


def _unsound(shard: Path, got: str, fix: str) -> DialError:
    return DialError(
        wanted=f"a plain tar archive of images and labels at {printable(shard)}", got=got, fix=fix
    )
