"""Memory that the C library keeps for the next batch while something of ours runs."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# Of glibc's malloc.h: what mallopt takes. Its own values grow with what a program frees, up to
# those of _GROWN; once mallopt is called they do not grow any more, so these are left behind.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
_KEEPING = {_TRIM_THRESHOLD: -1, _TOP_PAD: 256 * 1024**2, _MMAP_MAX: 0}
_GROWN = {_TRIM_THRESHOLD: 64 * 1024**2, _TOP_PAD: 128 * 1024}
_GROWN |= {_MMAP_THRESHOLD: 32 * 1024**2, _MMAP_MAX: 65536}
_keeps: ContextVar[bool] = ContextVar("_keeps", default=False)


@contextmanager
def keep_memory() -> Iterator[None]:
    """Inside the `with`, freed memory is not given back to the system; afterwards all of it is.

    A training step frees tensors of many megabytes that the next one asks for again, and on a CPU
    a fifth of its time goes into pages that the system hands out anew. Does nothing inside
    another such `with`, where the C library is not glibc, or where the environment tells it what
    to do.
    """
    library = _library()
    if library is None or _keeps.get():
        yield
        return
    token = _keeps.set(True)
    _set(library, _KEEPING)
    try:
        yield
    finally:
        _keeps.reset(token)
        _set(library, _GROWN)
        library.malloc_trim(0)


def give_back() -> None:
    """Give freed memory back to the system, that of other threads too, where this can be done.

    Each thread keeps what it freed for itself alone: as much as the largest image that it decoded.
    """
    library = _library()
    if library is not None:
        library.malloc_trim(0)


def _library() -> Any:
    """The C library, if it is glibc and the environment does not set its options."""
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    is_set = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    glibc = hasattr(library, "mallopt") and hasattr(library, "malloc_trim")
    return library if glibc and not is_set else None


def _set(library: Any, options: dict[int, int]) -> None:
    for option, value in options.items():
        library.mallopt(option, value)
