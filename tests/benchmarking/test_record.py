"""The record of a folder, and the command that follows from it: read back, it plans the same."""

import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from dial import DialError
from dial.benchmarking import bench, record
from dial.benchmarking.benchmarks import BENCHMARKS, Benchmark, get
from dial.benchmarking.cells import Cell, plan
from dial.cli import app
from dial.training.settings import PRESETS

BACKBONES = (None, "alexnet", "inception_bn", "efficientnet_lite1", "digits_cnn", "timm:resnet18")
DIGITS, OFFICE = get("digits"), get("office31")
RESULTS = Path(__file__).parents[2] / "results"


def planned(benchmark: Benchmark, options: dict[str, Any]) -> list[Cell]:
    seeds = [int(seed) for seed in options.get("seeds", "0").split(",")]
    return plan(
        benchmark,
        out=Path(),
        tasks=benchmark.choose_tasks(options.get("tasks")),
        rows=benchmark.choose_rows(options.get("methods")),
        seeds=seeds,
        preset=options.get("preset"),
        settings={key: options[key] for key in record.OPTIONS if key in options},
    )


def settings(cells: list[Cell]) -> list[dict[str, Any]]:
    return [
        {"task": cell.task.key, "row": cell.row.name, "seed": cell.seed,
         "settings": cell.settings().stored()}
        for cell in cells
    ]  # fmt: skip


def repeated(out: Path, benchmark: Benchmark, options: dict[str, Any]) -> str | None:
    """The command under the table of a grid that was begun with these options."""
    cells = planned(benchmark, options)
    record.write(out, benchmark, preset=cells[0].preset, settings=cells[0].overrides)
    return record.command(out, benchmark, settings(cells))


def typed(command: str | None) -> dict[str, Any]:
    assert command is not None
    words = shlex.split(command)
    assert words[:2] == ["dial", "bench"]
    bench = typer.main.get_command(app).commands["bench"]
    options: dict[str, Any] = bench.make_context("bench", words[2:]).params
    return options


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_presets_and_backbones_come_back(
    preset: str | None, backbone: str | None, name: str, tmp_path: Path
) -> None:
    benchmark = get(name)
    more = {"steps": 2, "lr": 0.01, "image_size": 96, "weights": "none", "batch_size": "8"}
    for some, methods in itertools.product(({}, more), (None, benchmark.rows[0].name)):
        options = {"preset": preset, "backbone": backbone, "methods": methods} | some
        command = repeated(tmp_path, benchmark, options)
        wanted = settings(planned(benchmark, options))
        assert settings(planned(benchmark, typed(command))) == wanted


def test_the_command_says_only_what_differs(tmp_path: Path) -> None:
    assert repeated(tmp_path, DIGITS, {"methods": "source_only,dial", "seeds": "0,1,2"}) == (
        "dial bench digits --out DIR --methods source_only,dial --seeds 0,1,2"
    )
    assert repeated(tmp_path, OFFICE, {"backbone": "alexnet"}) == (
        "dial bench office31 --out DIR --data DATA --backbone alexnet --seeds 0"
    )
    options = {"preset": "paper-alexnet", "steps": 2, "weights": "none", "tasks": "W-D"}
    assert repeated(tmp_path, OFFICE, options | {"methods": "dial", "seeds": "1"}) == (
        "dial bench office31 --out DIR --data DATA --preset paper-alexnet --weights none "
        "--steps 2 --tasks W-D --methods dial --seeds 1"
    )


def test_what_no_option_gives_has_no_command(tmp_path: Path) -> None:
    results = settings(planned(DIGITS, {}))
    assert record.command(tmp_path, DIGITS, results) is None  # an older folder, without a record
    record.write(tmp_path, DIGITS, preset="digits_cnn", settings={"momentum": 0.5})
    assert record.command(tmp_path, DIGITS, results) is None


def test_a_folder_is_its_benchmarks_from_the_start(tmp_path: Path) -> None:
    record.check(tmp_path, get("digits-ablation"))
    record.write(tmp_path, DIGITS, preset="digits_cnn", settings={"lr": 0.1})
    record.check(tmp_path, DIGITS)
    assert json.loads((tmp_path / "benchmark.json").read_text()) == {
        "benchmark": "digits", "preset": "digits_cnn", "settings": {"lr": 0.1},
    }  # fmt: skip
    with pytest.raises(DialError, match=r"which holds digits; fix: name another --out"):
        record.check(tmp_path, get("digits-ablation"))


def test_a_folder_without_a_record_is_known_by_its_older_note(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "benchmark.txt").write_text("digits")
    record.check(tmp_path, DIGITS)
    with pytest.raises(DialError, match=r"which holds digits; fix: name another --out"):
        record.check(tmp_path, OFFICE)


@pytest.mark.parametrize("content", ["{", "[]", '{"benchmark": "digits"}'])
def test_a_damaged_record_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "benchmark.json").write_text(content)
    with pytest.raises(DialError, match=r"benchmark\.json, got a damaged file"):
        record.check(tmp_path, DIGITS)


@pytest.mark.parametrize("folder", [path.parent for path in RESULTS.glob("*/results.jsonl")])
def test_the_committed_tables_follow_from_their_results(folder: Path, tmp_path: Path) -> None:
    for name in ("results.jsonl", "benchmark.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    name = json.loads((folder / "benchmark.json").read_text())["benchmark"]
    bench(name, out=tmp_path, tables_only=True)
    for name in ("results.jsonl", "table.md", "table.csv", "table.tex"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
