"""The comparison with other libraries: its table, its resuming, and what it says without them."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import peers
from benchmarks.peers import Cell, plan, read, run_missing, table

from dial.errors import DialError

MEASURED: dict[str, Any] = {"accuracy": 0.5, "step_ms": 12.4, "peak_mb": 700.6, "seconds": 9.0}
needs_skada = pytest.mark.skipif(
    importlib.util.find_spec("skada") is None, reason="skada is installed by `make peers` alone"
)


def cell(method: str, seed: int = 0, **changes: Any) -> Cell:
    values = {"task": "A-W", "library": "skada", "steps": 3, "image_size": 128} | changes
    return Cell(method=method, seed=seed, **values)


def result(of: Cell, **changes: Any) -> dict[str, Any]:
    return {"cell": vars(of), "version": "9.9"} | MEASURED | changes


def test_table_has_means_over_seeds_and_says_what_failed() -> None:
    two, shallow, failed = [cell("DANN"), cell("DANN", 1)], cell("CORAL"), cell("TCA")
    results = {two[0]: result(two[0]), two[1]: result(two[1], accuracy=0.6, seconds=11.0)}
    results[shallow] = result(shallow, step_ms=None)
    results[failed] = {"cell": vars(failed), "version": "9.9", "error": "ValueError: a | b"}
    lines = table([*two, shallow, failed, cell("SA")], results).splitlines()
    assert lines[0] == "| task | library | method | accuracy | ms a step | peak MB | seconds |"
    assert lines[2:5] == [
        "| A-W | skada 9.9 | DANN | 55.0 ± 7.1 | 12 | 701 | 10 |",
        "| A-W | skada 9.9 | CORAL | 50.0 | - | 701 | 9 |",
        "| A-W | skada 9.9 | TCA | failed: ValueError: a / b | - | - | - |",
    ]
    assert lines[5] == "", "a cell that has not run has no line"
    assert "3 steps, seeds 0, 1" in lines[6]
    assert "GFK" in lines[6]


def test_finished_cells_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done, failed, other = cell("DANN"), cell("TCA"), cell("DANN", steps=4)
    lines = [json.dumps(result(done)), json.dumps({"cell": vars(failed), "error": "killed"})]
    lines += [json.dumps(result(other, accuracy=0.9)), '{"cell": {"task": "A']
    (tmp_path / "peers.jsonl").write_text("\n".join(lines))
    ran = []

    def run(this: Cell, more: Any) -> dict[str, Any]:
        ran.append(this)
        return result(this, accuracy=0.7)

    monkeypatch.setattr(peers, "run", run)
    new = cell("SA")
    run_missing([done, failed, new], tmp_path, [])
    assert ran == [failed, new]
    assert "cannot be read" in capsys.readouterr().out
    stored = read(tmp_path / "peers.jsonl")
    assert {key: value["accuracy"] for key, value in stored.items()} == {
        done: 0.5,
        failed: 0.7,
        other: 0.9,
        new: 0.7,
    }
    page = (tmp_path / "peers.md").read_text()
    assert "| DANN | 50.0 |" in page
    assert "90.0" not in page, "other settings are no part of this table"
    run_missing([done, failed, new], tmp_path, [])
    assert ran == [failed, new]


def test_a_cell_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], 1, stdout="", stderr="Traceback\nValueError: no\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    found = peers.run(cell("dial", library="dial"), [])
    assert found["error"] == "ValueError: no"
    assert "accuracy" not in found


def test_missing_libraries_are_named_with_the_target_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None if name == "skada" else name)
    with pytest.raises(DialError, match="an environment without skada; fix: run `make peers`"):
        peers.require(["dial", "skada"])
    peers.require(["dial"])
    monkeypatch.setattr(sys, "argv", ["peers", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="2"):
        peers.main()
    assert "make peers" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_plan_goes_seed_by_seed() -> None:
    rows = ["dial", "source_only", "DANN"]
    cells = plan(["digits", "A-W"], ["dial"], rows, seeds=[0, 1], steps=3, image_size=128)
    assert {c.method for c in cells} == {"dial", "source_only"}
    assert [c.seed for c in cells] == sorted(c.seed for c in cells)
    assert {(c.task, c.image_size) for c in cells} == {("digits", None), ("A-W", 128)}


@pytest.mark.filterwarnings("ignore:pkg_resources is deprecated")  # where the peers are installed
def test_our_cell_is_what_dial_adapt_gives(tmp_path: Path) -> None:
    import dial

    small = cell("dial", library="dial", task="digits", image_size=None)
    run = dial.adapt(
        "digits:mnist", "digits:optdigits", out=tmp_path, steps=3, holdout=0.0, report=False
    )
    found = peers.measure(small, None, None)
    assert found["accuracy"] == run.result["target_accuracy"]
    assert found["step_ms"] > 0


@needs_skada
@pytest.mark.filterwarnings("ignore")
def test_skada_trains_the_network_with_our_optimizer() -> None:
    from benchmarks._peers import skada
    from benchmarks._peers.task import open_task

    options: dict[str, Any] = {"steps": 2, "image_size": None, "data": None, "cache_dir": None}
    task, labels = open_task("digits", seed=0, **options)
    before = task.backbone.network.get_submodule("block1.0").weight.detach().clone()
    predicted = skada.predict("DANN", task)
    assert predicted.shape == labels.shape
    assert len(task.ticks) == 3
    after = task.backbone.network.get_submodule("block1.0").weight
    assert np.abs((after - before).detach().numpy()).max() > 0
