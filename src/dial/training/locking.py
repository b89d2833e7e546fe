"""A lock between processes that the system itself opens again when its holder dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dial import files
from dial.errors import DialError


class NoLocksError(DialError):
    """The system has no locks on files."""


def _no_locks(got: str) -> NoLocksError:
    return NoLocksError(
        wanted="locks on files, by which several processes share the trials",
        got=got,
        fix="give the setting a value in place of auto",
    )


class FileLock:
    """An exclusive lock on a file, which is made where there is none and stays.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, FileLock(Path(folder) / "lock").held():
    ...     FileLock(Path(folder) / "lock").acquire(wait=False)
    False
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self, *, wait: bool = True) -> bool:
        """Take the lock; whether it is ours now. Without `wait` it may be another's.

        Raises:
            DialError: the folder cannot be written to, or the system has no such locks.
        """
        try:
            import fcntl
        except ImportError as error:  # Windows
            raise _no_locks("a system that has no fcntl") from error
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("ab")
        except OSError as error:
            raise files.unwritable(self._path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            return False
        except OSError as error:  # some network file systems
            file.close()
            raise _no_locks(error.strerror or str(error)) from error
        except BaseException:
            file.close()
            raise
        self._file = file
        return True

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it inside the `with`, waiting for it first."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    @contextmanager
    def tried(self) -> Iterator[bool]:
        """Without waiting, whether it is held inside the `with`; True where there are no locks."""
        try:
            ours = self.acquire(wait=False)
        except NoLocksError:
            ours = True
        try:
            yield ours
        finally:
            self.release()
