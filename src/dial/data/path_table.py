"""Very many paths in little memory: their bytes one after the other, and where each begins."""

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Rows = npt.NDArray[np.int64]


class Lazy(Sequence[T]):
    """A sequence whose items are made when they are asked for."""

    def __init__(self, length: int, get: Callable[[int], T]) -> None:
        self._length, self._get = length, get

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, row: int) -> T: ...
    @overload
    def __getitem__(self, row: slice) -> "tuple[T, ...]": ...
    def __getitem__(self, row: Any) -> Any:
        """Returns an item, or those of a slice."""
        if isinstance(row, slice):
            return tuple(self._get(each) for each in range(*row.indices(len(self))))
        place = int(row) + (len(self) if row < 0 else 0)
        if not 0 <= place < len(self):
            raise IndexError(row)
        return self._get(place)

    def __iter__(self) -> Iterator[T]:
        return map(self._get, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return NotImplemented if not isinstance(other, Sequence) else False
        return all(mine == its for mine, its in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash((len(self), *self[:1], *self[-1:]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self[:3])}{', ...' if len(self) > 3 else ''})"  # noqa: PLR2004


class PathTable(Lazy[Path]):
    """Paths, of which each takes its bytes and 16 more; a part of them shares the bytes.

    >>> PathTable.of(["b.png", "a/b.png"], Path("photos")).take([1, 0])[0].as_posix()
    'photos/a/b.png'
    """

    def __init__(self, text: bytes | bytearray, starts: Rows, ends: Rows, root: Path) -> None:
        super().__init__(len(starts), self._path)
        self._text, self._starts, self._ends, self._root = text, starts, ends, root

    def __reduce__(self) -> tuple[Any, ...]:
        return PathTable, (self._text, self._starts, self._ends, self._root)

    @classmethod
    def of(cls, paths: Iterable[str | Path], root: Path | None = None) -> "PathTable":
        """Returns a table of paths, which are relative to `root` unless they are absolute."""
        if isinstance(paths, PathTable) and root is None:
            return paths
        text, ends = bytearray(), array("q", [0])
        for path in paths:
            is_plain = isinstance(path, str) and path and "//" not in path and "./" not in path
            text += os.fsencode(path if is_plain else Path(path))
            ends.append(len(text))
        places = np.frombuffer(ends, dtype=np.int64)
        return cls(text, places[:-1], places[1:], root or Path())

    def _path(self, row: int) -> Path:
        return self._root / os.fsdecode(self._bytes(row))

    def _bytes(self, row: int) -> bytes:
        return bytes(self._text[self._starts[row] : self._ends[row]])

    def take(self, rows: Iterable[int]) -> "PathTable":
        """Returns the paths of these rows."""
        chosen = rows if isinstance(rows, np.ndarray) else np.fromiter(rows, dtype=np.int64)
        return PathTable(self._text, self._starts[chosen], self._ends[chosen], self._root)

    def distinct(self) -> "PathTable":
        """Returns each path once, in the order in which they come first."""
        hashes = np.fromiter(map(hash, map(self._bytes, range(len(self)))), np.int64, len(self))
        first, inverse = np.unique(hashes, return_index=True, return_inverse=True)[1:]
        leaders = first[inverse]
        is_kept = leaders == np.arange(len(self))
        if is_kept.all():
            return self
        for row in np.flatnonzero(
            ~is_kept
        ).tolist():  # equal hashes of other paths are rare, but possible
            is_kept[row] = self._bytes(row) != self._bytes(int(leaders[row]))
        return self.take(np.flatnonzero(is_kept))
