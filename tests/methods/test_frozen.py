"""The method `frozen`, by itself and as a whole run."""

from pathlib import Path

import pytest
import torch

from dial import adapt, methods
from dial.methods import Images

from .small import backbone


def test_the_network_keeps_all_but_its_classifier() -> None:
    labels = torch.arange(4).repeat(10)
    images = torch.randn(40, 3, 8, 8) + labels[:, None, None, None]
    method = methods.create("frozen")
    trainee = method.prepare(backbone())
    before = {name: value.clone() for name, value in trainee.network.state_dict().items()}
    candidate = method.begin(trainee, Images(images.split(16), labels, images.split(16)))["target"]
    after = candidate.network.state_dict()  # type: ignore[union-attr]
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"5.weight", "5.bias"}
    assert all(torch.equal(v, before[n]) for n, v in trainee.network.state_dict().items())
    with torch.no_grad():
        logits = candidate.network(images)  # type: ignore[union-attr]
    torch.testing.assert_close(logits, candidate.logits, atol=1e-4, rtol=1e-4)  # type: ignore[union-attr]


@pytest.mark.usefixtures("few_digits")
def test_a_run_has_no_epoch_but_a_model_and_a_report(tmp_path: Path) -> None:
    run = adapt(
        "digits:optdigits", "digits:mnist", out=tmp_path / "run", method="frozen", quiet=True
    )
    assert run.history == []
    assert (run.result["epochs"], run.result["steps"]) == (0, 0)
    assert run.result["predictor"] == "frozen"
    assert run.result["target_accuracy"] > 0.2  # random features; chance is 0.1
    assert (tmp_path / "run" / "report.html").exists()
    again = adapt(
        "digits:optdigits",
        "digits:mnist",
        out=tmp_path / "run",
        method="frozen",
        quiet=True,
        resume=True,
    )
    assert again.result == run.result
