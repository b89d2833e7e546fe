"""The script that measures estimates of accuracy: its figures, and its page."""

from pathlib import Path

import pytest
import torch
from benchmarks.estimates import CHOOSE, REPORT, Measured, find_task, measure, write_page

import dial
from dial.selection import estimators, outputs


def run(name: str, estimate: float, truth: float, *, shown: bool = True) -> Measured:
    values = dict.fromkeys(estimators.names(), estimate)
    interval = (estimate - 0.1, estimate + 0.1) if shown else None
    return Measured(name, truth, values, interval, "" if shown else "too few")


def test_no_task_is_in_both_halves() -> None:
    assert not {*CHOOSE} & {*REPORT}
    assert len(CHOOSE) == len(REPORT)


def test_tasks() -> None:
    assert find_task("mnist-optdigits", None) == ("digits:mnist", "digits:optdigits")
    assert find_task("A-W", None) == ("office31:amazon", "office31:webcam")
    assert find_task("D-A-third", Path("x")) == ("office31:dslr", "x/amazon-third.txt")


def test_the_page() -> None:
    runs = [run("a", 0.8, 0.75), run("b", 0.5, 0.7), run("c", 0.9, 0.9, shown=False)]
    page = write_page({"One": runs})
    assert "| 0.700 to 0.900 |" in page
    assert "| 0.400 to 0.600, missed |" in page
    assert "none: too few" in page
    assert "| neighbors | 3 | -20.0 | +5.0 | 8.3 |" in page
    assert "Shown for 2 of 3 runs; 1 contain the truth." in page


def nuclear_norm(run: dial.Run) -> float:
    """The sum of the singular values, from the eigenvalues of the Gram matrix."""
    shares = torch.tensor(outputs.load(Path(run.folder)).target.logits).double().softmax(1)
    values = torch.linalg.eigvalsh(shares.T @ shares).clamp_min(0).sqrt()
    return float(values.sum() / (len(shares) * min(shares.shape)) ** 0.5)


def test_a_finished_run(finished: dial.Run) -> None:
    found = measure(Path(finished.folder))
    assert found.truth == finished.result["target_accuracy"]
    assert found.estimates["neighbors"] is None  # nothing was held out
    assert found.estimates["nuclear_norm"] == pytest.approx(nuclear_norm(finished))
    assert found.interval is None
    assert found.reason.startswith("a network trained from scratch has only its own features")
