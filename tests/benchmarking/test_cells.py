"""Cells of a grid: shares, seeds, settings that do not change under a grid's feet."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dial import DialError
from dial.benchmarking.benchmarks import BENCHMARKS, Row, get
from dial.benchmarking.cells import (
    Cell,
    check_settings,
    plan,
    read_seeds,
    take_shard,
)


def cells(out: Path, **settings: Any) -> list[Cell]:
    digits = get("digits")
    return plan(
        digits,
        out=out,
        tasks=digits.tasks,
        rows=digits.choose_rows("source_only,dial,dan"),
        seeds=(0, 1),
        preset=settings.pop("preset", None),
        settings=settings,
    )


@pytest.mark.parametrize("count", [1, 2, 3, 5, 12, 20])
def test_shards_are_disjoint_and_together_the_grid(count: int, tmp_path: Path) -> None:
    every = cells(tmp_path)
    shares = [take_shard(every, f"{i}/{count}") for i in range(1, count + 1)]
    titles = [cell.title for share in shares for cell in share]
    assert sorted(titles) == sorted(cell.title for cell in every)
    assert len(set(titles)) == len(titles) == 12
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3", ""])
def test_wrong_shards(shard: str) -> None:
    with pytest.raises(DialError, match="a shard i/n with i from 1 to n"):
        take_shard([], shard)


@pytest.mark.parametrize("seeds", ["", "0,,1", "-1", "one", "0;1", "1.5", "0-2"])
def test_wrong_seeds(seeds: str) -> None:
    with pytest.raises(DialError, match="seeds like 0,1,2"):
        read_seeds(seeds)


def test_seeds_count_once() -> None:
    assert read_seeds("3, 1,3") == (3, 1)


def test_the_preset_follows_the_backbone(tmp_path: Path) -> None:
    assert cells(tmp_path)[0].preset == "digits_cnn"
    assert cells(tmp_path, backbone="efficientnet_lite1")[0].preset == "efficientnet_lite1"
    assert cells(tmp_path, backbone="timm:test_resnet")[0].preset == "efficientnet_lite0"
    assert cells(tmp_path, preset="paper-alexnet", lr=None)[0].settings().lr == 1e-3
    with pytest.raises(DialError, match=r"got lr=-1\.0"):
        cells(tmp_path, lr=-1.0)


def test_settings_that_differ_name_the_cell(tmp_path: Path) -> None:
    first = cells(tmp_path, lr=0.1)[0]
    stored = json.loads(json.dumps(first.settings().stored()))
    del stored["schedule"]  # as if that setting had come later
    first.folder.mkdir(parents=True)
    (first.folder / "config.json").write_text(json.dumps({"settings": stored}))
    check_settings(cells(tmp_path, lr=0.2), tmp_path, [])  # nothing has come of it
    (first.folder / "last.ckpt").touch()
    check_settings(cells(tmp_path, lr=0.1), tmp_path, [])
    with pytest.raises(DialError, match=r"seed-0 was run with, got lr was 0\.1, is 0\.2"):
        check_settings(cells(tmp_path, lr=0.2), tmp_path, [])
    with pytest.raises(DialError, match=r"source_only/seed-0 was run with, got lr was 0\.1"):
        check_settings(cells(tmp_path, lr=0.2)[1:2], tmp_path, [])  # another cell of the same table


def test_settings_of_published_results_count_too(tmp_path: Path) -> None:
    first = cells(tmp_path, lr=0.1)[0]
    stored = json.loads(json.dumps(first.settings().stored()))
    listed = [{"task": "mnist-optdigits", "row": "source_only", "seed": 0, "settings": stored}]
    check_settings(cells(tmp_path, lr=0.1), tmp_path, listed)
    for planned in (cells(tmp_path, lr=0.2), cells(tmp_path, lr=0.2)[1:2]):
        with pytest.raises(DialError, match=r"source_only/seed-0 was run with, got lr was 0\.1"):
            check_settings(planned, tmp_path, listed)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_rows_of_one_table_can_be_run_one_by_one(name: str, tmp_path: Path) -> None:
    benchmark = get(name)

    def plan_rows(rows: Sequence[Row]) -> list[Cell]:
        every = {"out": tmp_path, "tasks": benchmark.tasks, "seeds": (0,), "preset": None}
        return plan(benchmark, rows=rows, settings={"lr": 0.1}, **every)  # type: ignore[arg-type]

    listed = []
    for cell in plan_rows(benchmark.rows):
        stored = json.loads(json.dumps(cell.settings().stored()))
        about = {"task": cell.task.key, "row": cell.row.name, "seed": 0}
        listed.append(about | {"settings": stored})
    for row in benchmark.rows:
        check_settings(plan_rows([row]), tmp_path, listed)
