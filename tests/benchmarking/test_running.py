"""Grids as they are run: killed, sharded, stopped, failing, and on real photographs."""

import json
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dial import DialError
from dial.benchmarking import bench, running
from dial.benchmarking.cells import Cell
from dial.methods import kind
from dial.training import engine
from dial.training.engine import Interrupted
from dial.training.grid import held

from .. import few_digits
from ..commands import Command
from ..commands import run as run_command
from .test_results import finish

GRID: dict[str, Any] = {
    "tasks": "mnist-optdigits",
    "methods": "source_only,adabn,dial",
    "seeds": "0",
    "steps": 2,
}
ROWS = GRID["methods"].split(",")


def start(
    out: Path, *more: str, changes: Mapping[str, object] = few_digits.CHANGES, **grid: Any
) -> Command:
    options = [f"--{key.replace('_', '-')}={value}" for key, value in (GRID | grid).items()]
    return Command("bench", "digits", f"--out={out}", *options, *more, changes=changes)


@pytest.fixture(scope="module", autouse=True)
def _few_digits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in few_digits.CHANGES.items():
            patch.setattr(name, value)
        yield


def cell(out: Path, row: str) -> Path:
    return out / "runs" / "mnist-optdigits" / row / "seed-0"


def results(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid that nothing happened to."""
    out = tmp_path_factory.mktemp("whole")
    bench("digits", out=out, quiet=True, **GRID)
    return out


def test_a_grid_leaves_its_cells_and_tables(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    tables = {"table.md", "table.csv", "table.tex", "index.html"}
    assert names == {"runs", "benchmark.json", "results.jsonl", *tables}
    lines = results(whole)
    assert [line["row"] for line in lines] == ROWS
    assert lines[2]["settings"]["steps"] == 2
    assert {line["source"] for line in lines} == {"digits:mnist"}
    for line in lines:
        stored = json.loads((cell(whole, line["row"]) / "result.json").read_text())
        assert line["accuracy"] == stored["target_accuracy"]
        assert not (cell(whole, line["row"]) / "last.ckpt").exists()


def test_killed_and_started_again_it_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    # An epoch is 7 of the 10 steps.
    changes = {"tasks": "optdigits-mnist", "methods": "source_only,dial", "batch_size": "25+8"}
    grid, whole, killed = GRID | changes | {"steps": 10}, tmp_path / "whole", tmp_path / "killed"
    bench("digits", out=whole, quiet=True, **grid)
    process = start(killed, **grid)
    runs = killed / "runs" / "optdigits-mnist"
    while not (runs / "dial" / "seed-0" / "last.ckpt").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (runs / "dial" / "seed-0" / "result.json").exists()
    model = runs / "source_only" / "seed-0" / "model.safetensors"
    before = model.read_bytes(), model.stat().st_mtime_ns
    with patch("dial.training.engine._load", wraps=engine._load) as load:
        assert not bench("digits", out=killed, quiet=True, **grid).failed
    assert load.call_count == 1
    assert (model.read_bytes(), model.stat().st_mtime_ns) == before
    assert results(killed) == results(whole)
    for name in ("table.md", "table.csv", "table.tex", "index.html"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


def test_two_commands_at_the_same_time_share_the_cells(whole: Path, tmp_path: Path) -> None:
    told = ""
    for process in [start(tmp_path), start(tmp_path)]:
        told += process.communicate()[1]
        assert process.returncode == 0, told
    for row in ROWS:
        assert told.count(f"mnist->optdigits {row} seed 0: begun") == 1, told
    assert results(tmp_path) == results(whole)
    assert (tmp_path / "table.md").read_bytes() == (whole / "table.md").read_bytes()


def test_what_another_process_holds_or_has_finished_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def finish_another(here: Cell, *_: object) -> float:
        finish(tmp_path, "dial", 0)
        config = {"settings": here.settings().stored()}
        (cell(tmp_path, "dial") / "config.json").write_text(json.dumps(config))
        return 0.5

    monkeypatch.setattr(running, "_train", finish_another)
    with held(cell(tmp_path, "adabn").with_suffix(".lock")):
        outcome = bench("digits", out=tmp_path, **GRID)
    assert not outcome.failed
    assert [line["row"] for line in outcome.results] == ["dial"]
    told = capsys.readouterr().err.splitlines()
    assert told[2].startswith("cell 2/3 mnist->optdigits adabn seed 0: another process is at it")
    assert told[3] == "cell 3/3 mnist->optdigits dial seed 0: another process has finished it"


def test_two_shards_at_the_same_time_are_the_grid(whole: Path, tmp_path: Path) -> None:
    processes = [start(tmp_path, f"--shard={i}/2") for i in (1, 2)]
    for process in processes:
        _, told = process.communicate()
        assert process.returncode == 0, told
    assert results(tmp_path) == results(whole)
    assert (tmp_path / "table.md").read_bytes() == (whole / "table.md").read_bytes()


def test_a_finished_grid_runs_nothing_and_tables_need_no_settings(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(running, "_train")
    before = (whole / "results.jsonl").read_bytes()
    assert len(bench("digits", out=whole, **GRID).results) == 3
    outcome = bench("digits", out=whole, tables_only=True)
    assert [line.method for line in outcome.table.lines] == ["Source only", "AdaBN", "DIAL"]
    assert (whole / "results.jsonl").read_bytes() == before


def test_published_results_are_tabulated_and_kept(whole: Path, tmp_path: Path) -> None:
    published = (whole / "results.jsonl").read_text()
    for name in ("results.jsonl", "benchmark.json"):
        shutil.copy(whole / name, tmp_path)
    outcome = bench("digits", out=tmp_path, tables_only=True)
    assert outcome.results == [json.loads(line) for line in published.splitlines()]
    assert (tmp_path / "table.md").read_bytes() == (whole / "table.md").read_bytes()
    with pytest.raises(DialError, match=r"seed-0 was run with, got lr was 0\.001, is"):
        bench("digits", out=tmp_path, **GRID | {"seeds": "1"}, lr=0.5)
    assert (tmp_path / "results.jsonl").read_text() == published
    bench("digits", out=tmp_path, quiet=True, **GRID | {"methods": "dan"})
    rows = [line["row"] for line in results(tmp_path)]
    assert rows == ["source_only", "dan", "adabn", "dial"]
    assert set(published.splitlines()) < set((tmp_path / "results.jsonl").read_text().splitlines())


@pytest.mark.parametrize("name", ["empty", "nowhere"])
def test_there_are_no_tables_of_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DialError, match=rf"finished cells of the benchmark digits, got .*{name}"):
        bench("digits", out=tmp_path / name, tables_only=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_other_settings_or_benchmarks_do_not_mix(whole: Path) -> None:
    with pytest.raises(DialError, match=r"the cell in .*seed-0 was run with, got lr was"):
        bench("digits", out=whole, **GRID, lr=0.5)
    with pytest.raises(DialError, match=r"got batch_size was"):
        bench("digits", out=whole, **GRID | {"methods": "dan"}, batch_size="8+8")
    with pytest.raises(DialError, match=r"which holds digits; fix: name another --out"):
        bench("digits-ablation", out=whole)


def test_a_cell_that_fails_does_not_stop_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = running._train

    def fail(cell: Cell, more: dict[str, Any]) -> float:
        if cell.row.name == "source_only":
            raise DialError(wanted="a finite loss", got="nan", fix="try a lower --lr")
        return train(cell, more)

    monkeypatch.setattr(running, "_train", fail)
    outcome = bench("digits", out=tmp_path, **GRID | {"methods": "source_only,dial"})
    assert list(outcome.failed) == ["mnist->optdigits source_only seed 0"]
    assert [line["row"] for line in outcome.results] == ["dial"]
    told = capsys.readouterr().err
    assert "cell 1/2 mnist->optdigits source_only seed 0: failed: wanted a finite loss" in told
    assert "cell 2/2 mnist->optdigits dial seed 0: " in told
    assert "| Source only | - |" in (tmp_path / "table.md").read_text()


def test_the_time_left_knows_what_failed_and_who_looks_at_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]

    def pass_time(cell: Cell, *_: object) -> float:
        if cell.row.name == "source_only":
            now[0] += 1000
            raise DialError(wanted="a finite loss", got="nan", fix="try a lower --lr")
        now[0] += 10
        return 0.5

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(running, "_train", pass_time)
    bench("digits", out=tmp_path, **GRID | {"steps": 2000})
    told = capsys.readouterr().err.splitlines()
    assert told[3] == "cell 2/3 mnist->optdigits adabn seed 0: 50.0 % in 10 s; about 20 s left"


def test_a_cell_that_breaks_does_not_stop_the_grid_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("Calculated padded input size per channel: (3 x 3)\nin the kernel")

    monkeypatch.setattr(kind("adabn"), "finish", break_down)
    outcome = bench("digits", out=tmp_path, **GRID | {"methods": "adabn,dial"})
    reason = "RuntimeError: Calculated padded input size per channel: (3 x 3)"
    assert outcome.failed == {"mnist->optdigits adabn seed 0": reason}
    assert [line["row"] for line in outcome.results] == ["dial"]
    told = capsys.readouterr().err
    assert f"cell 1/2 mnist->optdigits adabn seed 0: failed: {reason}\n" in told


def test_the_command_lists_what_failed_and_ends_with_code_2(tmp_path: Path) -> None:
    grid = {"methods": "dial", "steps": 20, "lr": 1e30}
    process = start(tmp_path, "--quiet", "--json", **grid)
    printed, told = process.communicate()
    assert process.returncode == 2
    assert told.startswith("dial: error: mnist->optdigits dial seed 0: wanted a finite loss")
    assert told.count("\n") == 1
    assert json.loads(printed)["results"] == []


def test_asked_to_stop_it_says_how_to_go_on(tmp_path: Path) -> None:
    process = start(tmp_path, steps=100_000)
    while not (cell(tmp_path, "source_only") / "last.ckpt").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130, told
    assert f"dial: stopped; resume with the same command ({tmp_path})" in told
    assert "Traceback" not in told
    assert not (cell(tmp_path, "adabn") / "config.json").exists()


def test_sigterm_stops_it_also_outside_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(running, "_train", lambda *_: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        bench("digits", out=tmp_path, quiet=True, **GRID)
    assert signal.getsignal(signal.SIGTERM) == former


def test_sigterm_while_a_cell_resumes_stops_it_and_it_goes_on(whole: Path, tmp_path: Path) -> None:
    def stop(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    with (
        patch("dial.pipeline.process.Process.finish", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        bench("digits", out=tmp_path, quiet=True, **GRID)
    assert (cell(tmp_path, "source_only") / "last.ckpt").exists()
    with pytest.raises(DialError, match=r"which holds digits; fix: name another --out"):
        bench("digits-ablation", out=tmp_path)
    with patch("dial.training.engine.torch.load", stop), pytest.raises(Interrupted):
        bench("digits", out=tmp_path, quiet=True, **GRID)
    assert not bench("digits", out=tmp_path, quiet=True, **GRID).failed
    assert results(tmp_path) == results(whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "office32"}, "one of the benchmarks office31,"),
        ({"tasks": "A-W"}, r"tasks of digits \(mnist-optdigits, optdigits-mnist\), got 'a-w'"),
        ({"methods": "magic"}, "rows of digits"),
        ({"seeds": "one"}, "seeds like 0,1,2"),
        ({"shard": "3/2"}, "a shard i/n"),
        ({"preset": "magic"}, "one of the presets"),
        ({"backbone": "magic"}, "one of the backbones"),
        ({"steps": 0}, "got steps=0"),
        ({"batch_size": "1+1"}, r"a batch size like 32\+16"),
        ({"methods": "source_only,dial", "batch_size": "3"}, r"a batch size like 32\+16"),
        ({"execution": {"device": "magic"}}, "a device 'magic'"),
        ({"execution": {"workers": -1}}, "of 0 or more, got -1"),
        ({"name": "office31", "tasks": None, "methods": None}, "fix: pass --data DIR"),
    ],
)
def test_wrong_use_is_told_before_anything_runs(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DialError, match=message):
        bench(**{"name": "digits", "out": tmp_path, **GRID, **changes})
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DialError, match=r"to write .*file/benchmark\.json, got"):
        bench("digits", out=tmp_path / "file", **GRID)


def test_wrong_use_of_the_command() -> None:
    result = run_command("bench", "office32", "--out", "nowhere")
    assert result.returncode == 2
    assert result.stderr.startswith("dial: error: wanted one of the benchmarks office31, ")
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper-inception-bn", "paper-alexnet"])
def test_the_papers_presets_on_real_images(preset: str, office31: Path, tmp_path: Path) -> None:
    outcome = bench(
        "office31",
        out=tmp_path,
        data=office31,
        tasks="W-D",
        methods="dial",
        seeds="0",
        preset=preset,
        weights="none",
        steps=2,
        image_size=64,
        batch_size="8+8",
        quiet=True,
        execution={"cache_dir": str(tmp_path / "cache")},
    )
    assert not outcome.failed
    assert outcome.results[0]["reference"] == "normal"
    assert len(outcome.table.lines) == 10
