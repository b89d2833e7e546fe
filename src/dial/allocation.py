"""Memory that is freed and wanted again at every step, kept by the process meanwhile."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Of glibc's malloc.h: what mallopt takes, with the values that hold if nothing is said.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _TOP_PAD: 128 * 1024, _MMAP_MAX: 65536}
_KEEPING = {_TRIM_THRESHOLD: -1, _TOP_PAD: 256 * 1024**2, _MMAP_MAX: 0}


@contextmanager
def kept() -> Iterator[None]:
    """Inside the `with`, freed memory is not given back to the system; afterwards all of it is.

    A training step frees tensors of many megabytes that the next one asks for again, and on a CPU
    a fifth of its time goes into pages that the system hands out anew. Does nothing where the C
    library is not glibc, or where the environment tells it what to do.
    """
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    told = any(name.startswith("MALLOC_") for name in os.environ)
    if told or not (hasattr(library, "mallopt") and hasattr(library, "malloc_trim")):
        yield
        return
    _set(library, _KEEPING)
    try:
        yield
    finally:
        _set(library, _DEFAULTS)
        library.malloc_trim(0)


def _set(library: Any, options: dict[int, int]) -> None:
    for option, value in options.items():
        library.mallopt(option, value)
