"""Locks on files and folders: shared by the processes that use one, alone to change it."""

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dial.data.decode import Bytes
from dial.files import lock, lock_alone


def hold(file: Path) -> int | None:
    """Lock a file along with others that use it. Returns the descriptor that holds the lock.

    None if the file is not there, or has been removed while this waited for the lock.
    """
    descriptor = _open(file, os.O_RDONLY)
    if descriptor is None:
        return None
    lock(descriptor)
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), os.stat(file)):
            return descriptor
    os.close(descriptor)
    return None


def release_with(array: Bytes, descriptor: int) -> None:
    """Give a lock up when nothing refers to an array any more."""
    weakref.finalize(array, os.close, descriptor)


@contextmanager
def alone(file: Path) -> Iterator[bool]:
    """Hold the lock of a file or a folder alone. Gives whether it could be had at once.

    What is not there can be had.
    """
    descriptor = _open(file, os.O_RDWR, os.O_RDONLY)  # network disks want the first
    try:
        yield descriptor is None or lock_alone(descriptor, without_locks=True)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_held(file: Path) -> bool:
    """Whether any process holds the lock of a file."""
    with alone(file) as is_free:
        return not is_free


def _open(file: Path, *modes: int) -> int | None:
    for mode in modes:
        with suppress(OSError):
            return os.open(file, mode)
    return None
