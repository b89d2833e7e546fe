"""Progress: a bar in a terminal, plain lines in a log, nothing when quiet."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from dial import console, methods
from dial.console import GridProgress, Reporter


def test_the_time_left_follows_the_cells_that_were_finished_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    costs = {"A->W dial seed 0": 10.0, "b": 500.0, "c": 40.0, "d": 30.0}
    with GridProgress(costs, done=1, quiet=False) as bar:
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


def test_cells_that_run_at_once_end_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    with GridProgress({"a": 10.0, "b": 1.0, "c": 9.0}, done=0, quiet=False, at_once=2) as bar:
        bar.finished("b", accuracy=0.5, seconds=10)
        bar.finished("a", accuracy=0.5, seconds=100)
        bar.finished("c", accuracy=0.5, seconds=90)
    assert capsys.readouterr().err.splitlines() == [
        "cell 1/3 b: 50.0 % in 10 s; about 95 s left",
        "cell 2/3 a: 50.0 % in 100 s; about 90 s left",
        "cell 3/3 c: 50.0 % in 90 s",
    ]


def test_log_gets_plain_lines_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_SECONDS_BETWEEN_LINES", 0.0)
    assert list(console.track("ab", total=2, title="reading [amazon]")) == ["a", "b"]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("reading [amazon]: 1 of 2 images")
    assert err.count("\n") == 2


def test_quick_passes_leave_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(console.track("ab", total=2, title="reading")) == ["a", "b"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_has_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    title = "dial: office31:amazon -> office31:webcam"
    terms = {"cross_entropy": 0.5281, "entropy": 0.1962}
    with Reporter(quiet=False, title=title) as reporter:
        reporter.step(SimpleNamespace(step=3), 10, terms)
        reporter.bar.refresh()
        reporter.say("word " * width)
    list(console.track("ab", total=2, title="reading"))
    with GridProgress({"A->W": 1.0}, done=0, quiet=False) as grid:
        grid.begin("A->W")
        grid.bar.refresh()
    err = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    for text in ("dial: office31:amazon -> ", "3/10", "-:--:--", "reading", "A->W", "0/1"):
        assert text in err
    assert ("cross_entropy 0.528  entropy 0.196" in err) == (width == 120)
    assert (title in err) == (width == 120)
    assert "begun" not in err
    assert "images" not in err
    lines = re.split(r"[\r\n]+", err)
    assert max(map(len, lines)) <= width
    assert {word for line in lines if "word" in line for word in line.split()} == {"word"}


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(quiet=True, title="a") as reporter:
        reporter.step(SimpleNamespace(step=1), 2, {"loss": 1.0})
        reporter.warn("b")
    with GridProgress({"c": 1.0}, done=1, quiet=True) as grid:
        grid.begin("c")
    assert list(console.track("ab", total=2, title="d", quiet=True)) == ["a", "b"]
    assert capsys.readouterr() == ("", "")


def test_scores_that_are_not_of_the_finished_network_say_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    midway = methods.kind("adabn").midway
    reporter = Reporter(quiet=False, title="", midway=midway)
    reporter.epoch({"epoch": 1, "step": 2, "target_accuracy": 0.5})
    assert capsys.readouterr().err == (
        "epoch 1  step 2  target accuracy 50.0% (before the target's statistics, which come at "
        "the end)\n"
    )


def test_a_training_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(quiet=False, title="dial: [a] -> b") as reporter:
        reporter.begin("alexnet at 32 px")
        reporter.resumed(SimpleNamespace(step=1), 2)
        reporter.step(SimpleNamespace(step=1), 2, {"loss": 1.0})
        reporter.epoch({"epoch": 1, "step": 2, "loss": 0.25, "target_accuracy": 0.5})
        for _ in range(2):
            reporter.warn("few classes")
        for number in (99, 98):
            reporter.warn(f"{number}% in one", kind="collapse")
    result = {"seconds": 3.0, "target_accuracy": 0.5, "no_estimate": "few images"}
    reporter.finished(result | {"estimated_interval": [0.42, 0.615]}, Path("run"))
    reporter.finished(result, Path("run"))
    reporter.finished(result | {"target_accuracy": None}, Path("run"))
    Reporter(quiet=False, title="", scores=False).finished(result, Path("run"))
    assert capsys.readouterr().err.splitlines() == [
        "dial: [a] -> b: alexnet at 32 px",
        "resumed after step 1 of 2",
        "epoch 1  step 2  loss 0.25  target accuracy 50.0%",
        "dial: warning: few classes",
        "dial: warning: 99% in one",
        "finished in 3 s, folder run: target accuracy 50.0%, estimated without labels: 42% to 62%",
        "finished in 3 s, folder run: target accuracy 50.0%",
        "finished in 3 s, folder run: no labels to score with, no estimate (few images)",
        "to measure it on 50 images by hand: dial label run",
        "finished in 3 s",
    ]


def test_listing(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_listing([{"name": "a[b]", "about": "first"}, {"name": "c", "about": "second"}])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["name", "about"], ["a[b]", "first"], ["c", "second"],
    ]  # fmt: skip


def test_a_run_without_labels_says_how_to_measure_it(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"seconds": 3.0, "target_accuracy": None}
    Reporter(quiet=False, title="").finished(result, Path("my run"))
    assert capsys.readouterr().err.splitlines() == [
        "finished in 3 s, folder 'my run': no labels to score with",
        "to measure it on 50 images by hand: dial label 'my run'",
    ]
