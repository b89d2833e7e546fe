"""What a grid tells of its progress."""

import pytest

from dial.benchmarking import progress
from dial.benchmarking.progress import GridProgress


def test_the_time_left_follows_the_costs_and_not_the_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with GridProgress([10.0, 500.0, 30.0], done=1, quiet=False) as bar:
        bar.begin("a")
        now[0] = 310.0
        bar.finished("A->W dial seed 0", accuracy=0.733, seconds=310)
        bar.failed("b", "wanted this")
        bar.finished("c", accuracy=1, seconds=930)
    assert capsys.readouterr().err.splitlines() == [
        "1 of 4 cells are finished already",
        "cell 2/4 A->W dial seed 0: 73.3 % in 310 s; about 4 h 34 min left",
        "cell 3/4 b: failed: wanted this; about 16 min left",
        "cell 4/4 c: 100.0 % in 930 s",
    ]
