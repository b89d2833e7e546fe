"""Which runs keep the source, with pairs counted by hand."""

from dataclasses import replace

import numpy as np

from dial.selection import validators
from dial.selection.outputs import LabelledObservation, Outputs

from .small import make


def test_runs_that_keep_the_source() -> None:
    """Pairs counted one by one: so many images lost against the best, so many won."""

    def keep(*right: str) -> list[bool]:
        labels = np.zeros(len(right[0]), dtype=np.int64)
        logits = [np.array([[1, 0] if r == "+" else [0, 1] for r in row], float) for row in right]
        held = [LabelledObservation(each, each, labels) for each in logits]
        runs = [Outputs(target=seen, training=seen, held_out=seen) for seen in held]
        return validators.keep_the_source([validators.correct_on_source(run) for run in runs])

    best = "++++++++++--"
    assert keep(best, "+++++++++---") == [True, True]  # 1 lost: 1 <= sqrt(1)
    assert keep("++++++++----", best) == [False, True]  # 2 lost: 2 > sqrt(2)
    assert keep(best, "+++++++---+-") == [True, True]  # 3 lost, 1 won: 2 <= sqrt(4)
    assert keep(best, "++++++----+-") == [True, False]  # 4 lost, 1 won: 3 > sqrt(5)
    without = validators.correct_on_source(replace(make(), held_out=None))
    assert validators.keep_the_source([without, without]) == [True, True]
    assert validators.keep_the_source([]) == []
