"""One parallel pass over a domain's files: every image decoded once, in order, in flat memory."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from dial.data.decode import BadImage, GoodImage, read_image, strict_pillow
from dial.data.folders import shown
from dial.data.progress import track
from dial.errors import DialError

_CHUNK = 32  # images that each thread reads before they are handed on
_MOST_LISTED = 200


def read_all(
    paths: Sequence[Path],
    *,
    resize: int,
    channels: int = 3,
    doing: str = "reading images",
    quiet: bool = False,
    threads: int | None = None,
) -> Iterator[GoodImage | BadImage]:
    """Decode every file, in the order of `paths`.

    Threads, not processes: Pillow decodes and resizes outside the interpreter's lock, and threads
    have nothing to start and no pixels to copy. `benchmarks.data` measures what a core adds.
    """
    images = _chunks(paths, resize=resize, channels=channels, threads=threads or cores())
    yield from track(images, total=len(paths), doing=doing, quiet=quiet)


def _chunks(
    paths: Sequence[Path], *, resize: int, channels: int, threads: int
) -> Iterator[GoodImage | BadImage]:
    read = partial(read_image, resize=resize, channels=channels)
    step = threads * _CHUNK
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(paths), step):
            with strict_pillow():  # closed again before the caller goes on
                images = list(pool.map(read, paths[start : start + step]))
            yield from images


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def bad_files_error(bad: Mapping[Path, str], *, total: int) -> DialError:
    """All bad files in one message: how many of each kind, what to do, where they are."""
    return DialError(
        wanted=f"images that can all be read ({total} files)",
        got=count_bad(bad),
        fix="mend or remove them, or pass --skip-bad (skip_bad=True) to go on without them:\n"
        + list_bad(bad),
    )


def count_bad(bad: Mapping[Path, str]) -> str:
    """How many bad files there are of each kind.

    >>> count_bad({Path("a.jpg"): "truncated", Path("b.jpg"): "truncated", Path("c.jpg"): "empty"})
    '3 bad: 2 truncated; 1 empty'
    """
    kinds = [f"{count} {reason}" for reason, count in Counter(bad.values()).most_common()]
    return f"{len(bad)} bad: " + "; ".join(kinds)


def list_bad(bad: Mapping[Path, str]) -> str:
    """Where bad files are and what is wrong with them, a line each."""
    lines = [f"  {shown(path)}: {reason}" for path, reason in list(bad.items())[:_MOST_LISTED]]
    if len(bad) > _MOST_LISTED:
        lines.append(f"  ... and {len(bad) - _MOST_LISTED} more")
    return "\n".join(lines)
