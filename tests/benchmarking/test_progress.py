"""What a grid tells of its progress."""

import pytest

from dial.benchmarking.progress import GridProgress


def test_the_time_left_follows_the_cells_that_were_finished_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with GridProgress([10.0, 500.0, 40.0, 30.0], done=1, quiet=False) as bar:
        bar.begin("A->W dial seed 0")
        bar.finished("A->W dial seed 0", accuracy=0.733, seconds=310)
        bar.begin("b")
        bar.failed("b", "wanted this")
        bar.skipped("c", "another process is at it")
        bar.begin("d")
        bar.finished("d", accuracy=1, seconds=930)
    assert capsys.readouterr().err.splitlines() == [
        "1 of 5 cells are finished already",
        "cell 2/5 A->W dial seed 0: begun",
        "cell 2/5 A->W dial seed 0: 73.3 % in 310 s; about 4 h 54 min left",
        "cell 3/5 b: begun",
        "cell 3/5 b: failed: wanted this; about 36 min left",
        "cell 4/5 c: another process is at it; about 16 min left",
        "cell 5/5 d: begun",
        "cell 5/5 d: 100.0 % in 930 s",
    ]
