"""Where a run's time goes: what somebody waited for it, phase by phase."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_since: ContextVar[float] = ContextVar("_since")
_FIRST = "start"


@contextmanager
def waiting() -> Iterator[None]:
    """What is called inside the `with` is waited for from here on."""
    token = _since.set(time.perf_counter())
    try:
        yield
    finally:
        _since.reset(token)


def waited_since() -> float:
    """Returns when the user began to wait, on the clock of `time.perf_counter`."""
    return _since.get(time.perf_counter())


class Clock:
    """Seconds of each phase. A phase inside another is not part of it, so their sum is the wait.

    Until the first one begins, and between them, time counts as `start` or as `other`.
    """

    def __init__(self, since: float | None = None) -> None:
        self._since = time.perf_counter() if since is None else since
        self._phases = [_FIRST]
        self._spent: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What happens inside the `with` belongs to this phase."""
        self._settle()
        if self._phases == [_FIRST]:
            self._phases = ["other"]
        self._phases.append(name)
        try:
            yield
        finally:
            self._settle()
            self._phases.pop()

    def add(self, spent: Mapping[str, float]) -> None:
        """Add what was spent before the run was resumed."""
        for name, seconds in spent.items():
            self._spent[name] = self._spent.get(name, 0.0) + seconds

    def spent(self) -> dict[str, float]:
        """Returns the seconds of each phase so far, in the order in which they began."""
        self._settle()
        return dict(self._spent)

    def total(self) -> float:
        """Returns the seconds since the start, and those before the run was resumed."""
        return sum(self.spent().values())

    def _settle(self) -> None:
        now = time.perf_counter()
        self.add({self._phases[-1]: now - self._since})
        self._since = now
