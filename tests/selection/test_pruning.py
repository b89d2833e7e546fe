"""When a trial is stopped early: its score against those of others that keep the source."""

from dial.selection.pruning import Standing, is_behind, should_stop


def test_clearly_behind() -> None:
    assert not is_behind(-100.0, [])
    assert not is_behind(-100.0, [1.0])
    assert is_behind(0.8, [1.0, 1.01])
    assert not is_behind(0.97, [1.0, 1.0])  # less than a twentieth
    assert not is_behind(0.8, [1.0, 1.5])  # they differ as much themselves
    assert is_behind(-3.0, [-1.0, -1.0, -2.0])


def standing(score: float, correct: str) -> Standing:
    return Standing(score=score, correct=[letter == "+" for letter in correct])


def test_only_trials_that_keep_the_source_are_compared_with() -> None:
    sound = [standing(1.0, "++++++++++"), standing(1.0, "+++++++++-")]
    lost = [standing(1.0, "+++++-----")] * 2
    behind = standing(0.5, "++++++++--")
    assert should_stop(behind, sound)
    assert not should_stop(standing(0.99, "++++++++--"), sound)
    assert not should_stop(behind, [sound[0], *lost])  # one alone is too few
    assert not should_stop(standing(0.5, "++++++++++"), sound)  # the best on the source
    assert not should_stop(behind, [])


def test_without_a_held_out_source_all_are_compared_with() -> None:
    assert should_stop(standing(0.5, ""), [standing(1.0, ""), standing(1.0, "")])
