"""The command below a table, read by the command itself, plans cells of the same settings."""

import itertools
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from dial.benchmarking.cells import Cell, plan
from dial.benchmarking.grids import BENCHMARKS, Benchmark, get
from dial.benchmarking.repetition import TYPED, repeat_command
from dial.cli import app
from dial.training.settings import PRESETS

BACKBONES = (None, "alexnet", "inception_bn", "efficientnet_lite1", "digits_cnn", "timm:resnet18")


def planned(benchmark: Benchmark, options: dict[str, Any]) -> list[Cell]:
    seeds = [int(seed) for seed in options.get("seeds", "0").split(",")]
    return plan(
        benchmark,
        out=Path(),
        tasks=benchmark.choose_tasks(options.get("tasks")),
        rows=benchmark.choose_rows(options.get("methods")),
        seeds=seeds,
        preset=options.get("preset"),
        given={key: options[key] for key in TYPED if key in options},
    )


def settings(cells: list[Cell]) -> list[dict[str, Any]]:
    return [
        {"task": cell.task.key, "row": cell.row.name, "seed": cell.seed,
         "settings": cell.settings().stored()}
        for cell in cells
    ]  # fmt: skip


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
    preset: str | None, backbone: str | None, name: str
) -> None:
    benchmark = get(name)
    more = {"steps": 2, "lr": 0.01, "image_size": 96, "weights": "none", "batch_size": "8"}
    for some, methods in itertools.product(({}, more), (None, benchmark.rows[0].name)):
        options = {"preset": preset, "backbone": backbone, "methods": methods} | some
        wanted = settings(planned(benchmark, options))
        assert settings(planned(benchmark, typed(repeat_command(benchmark, wanted)))) == wanted


def test_the_command_says_only_what_differs() -> None:
    digits, office = get("digits"), get("office31")
    some = settings(planned(digits, {"methods": "source_only,dial", "seeds": "0,1,2"}))
    assert repeat_command(digits, some) == (
        "dial bench digits --out DIR --methods source_only,dial --seeds 0,1,2"
    )
    some = settings(planned(office, {"backbone": "alexnet"}))
    assert repeat_command(office, some) == (
        "dial bench office31 --out DIR --data DATA --backbone alexnet --seeds 0"
    )
    options = {"preset": "paper-alexnet", "steps": 2, "weights": "none", "tasks": "W-D"}
    some = settings(planned(office, options | {"methods": "dial", "seeds": "1"}))
    assert repeat_command(office, some) == (
        "dial bench office31 --out DIR --data DATA --preset paper-alexnet --weights none "
        "--steps 2 --tasks W-D --methods dial --seeds 1"
    )


def test_what_no_option_gives_has_no_command() -> None:
    some = settings(planned(get("digits"), {}))
    for result in some:
        result["settings"]["momentum"] = 0.5
    assert repeat_command(get("digits"), some) is None
