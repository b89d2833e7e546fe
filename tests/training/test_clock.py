"""The clock of a run: phases that add up to the wait."""

import time

import pytest

from dial.training import clock
from dial.training.clock import Clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets."""
    times = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: times[0])
    return times


def test_phases_add_up_to_the_wait(now: list[float]) -> None:
    watch = Clock(since=90.0)
    with watch.phase("images"):
        now[0] = 103.0
    now[0] = 104.0
    with watch.phase("steps"):
        now[0] = 109.0
        with watch.phase("epochs"):
            now[0] = 111.0
        now[0] = 112.0
    assert watch.spent() == {"start": 10, "images": 3, "other": 1, "steps": 6, "epochs": 2}
    assert watch.total() == 112 - 90


def test_a_phase_that_fails_is_over(now: list[float]) -> None:
    watch = Clock()

    def read() -> None:
        now[0] = 101.0
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"), watch.phase("images"):
        read()
    now[0] = 105.0
    assert watch.spent() == {"start": 0, "images": 1, "other": 4}


def test_a_resumed_run_has_the_time_from_before(now: list[float]) -> None:
    watch = Clock()
    watch.add({"steps": 7.0})
    with watch.phase("steps"):
        now[0] = 102.0
    assert watch.spent()["steps"] == 9
    assert watch.total() == 9


def test_the_command_began_before_the_library_was_called(now: list[float]) -> None:
    with clock.waiting():
        now[0] = 105.0
        assert clock.waited_since() == 100.0
    assert clock.waited_since() == 105.0  # the next call begins anew
