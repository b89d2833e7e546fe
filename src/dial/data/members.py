"""Images inside archives, each found by its archive, its offset and its size."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dial.data.decode import BadImage, GoodImage, Member, read_images
from dial.data.path_table import Lazy
from dial.errors import DialError
from dial.files import printable


@dataclass(frozen=True, eq=False)
class ImageMembers:
    """Images in tar archives, in the order in which results list them; no bytes of them are kept.

    `keys` are their names in the archives, `(N,)`. `places` is `(N, 3)`: the number of the archive,
    the offset in it, and how many bytes.
    """

    shards: tuple[Path, ...]
    keys: npt.NDArray[np.bytes_]
    places: npt.NDArray[np.int64]
    like_digits: ClassVar[bool] = False
    kind: ClassVar[str] = "members of archives"

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def names(self) -> Sequence[str]:
        """What predictions and messages call each image: the archive's path and its name there."""
        shards, numbers = [printable(shard) for shard in self.shards], self.places[:, 0]
        return Lazy(len(self), lambda row: f"{shards[numbers[row]]}/{self.keys[row].decode()}")

    @property
    def identity(self) -> tuple[str | int, ...]:
        """Equal for the same images: their number and the two ends."""
        ends = [*self.names[:1], *self.names[-1:]]
        return len(self), *(os.path.realpath(name) for name in ends)

    @property
    def fingerprint(self) -> str:
        """A hash of the archives' names and the names in them, so that the folder may move."""
        names = [*(shard.name for shard in self.shards), str(self.places[:, 0].tolist())]
        text = "\n".join(names).encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text + self.keys.tobytes(), digest_size=16).hexdigest()

    def __getitem__(self, row: int) -> Member:
        """Returns where an image is."""
        number, offset, size = self.places[row].tolist()
        return Member(self.shards[number], offset, size, Path(self.keys[row].decode()).suffix)

    def take(self, rows: Iterable[int]) -> "ImageMembers":
        """Returns the images of these rows."""
        chosen = np.fromiter(rows, dtype=np.int64)
        return ImageMembers(self.shards, self.keys[chosen], self.places[chosen])

    def join(self, others: Sequence[Any]) -> "ImageMembers":
        """Returns these images and then the others', which must be in archives too."""
        parts = [self, *(each for each in others if isinstance(each, ImageMembers))]
        if len(parts) <= len(others):
            raise unlike([self, *others])
        starts = np.cumsum([0, *(len(part.shards) for part in parts)])[:-1]
        pairs = zip(parts, starts, strict=True)
        shifts = [part.places + np.array([start, 0, 0]) for part, start in pairs]
        return ImageMembers(
            tuple(shard for part in parts for shard in part.shards),
            np.concatenate([part.keys for part in parts]),
            np.concatenate(shifts),
        )

    def distinct(self) -> "ImageMembers":
        """Returns the images as they are: no archive has one twice."""
        return self

    def stamps(self) -> Iterator[bytes]:
        """Yields what a cache of these images depends on: archives, their times, and places."""
        for shard in self.shards:
            yield stamp(shard)
        yield self.places.tobytes()

    def decode(
        self, *, resize: int, channels: int, title: str, quiet: bool
    ) -> Iterator[GoodImage | BadImage]:
        """Yields every image, `(resize, resize, channels)`, in order; nothing is kept."""
        return read_images(self, resize=resize, channels=channels, title=title, quiet=quiet)


def stamp(path: Path) -> bytes:
    """Returns a file's path, size and time, as bytes."""
    try:
        state = os.stat(path)
        times = f"{state.st_size} {state.st_mtime_ns}"
    except OSError as error:
        times = f"error {error.errno}"
    return b"\0" + os.fsencode(path.absolute()) + b"\0" + times.encode()


def unlike(images: Sequence[Any]) -> DialError:
    """Returns the error about images that cannot be put together."""
    return DialError(
        wanted="images of one kind to put together: all files, all in archives, or all arrays of "
        "one shape",
        got=", ".join(each.kind for each in images),
        fix="write the images to files; several sources can also stay apart, without "
        "--merge-sources",
    )
