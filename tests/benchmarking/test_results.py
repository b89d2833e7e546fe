"""Results gathered from run folders, also while other processes add to them."""

import json
from pathlib import Path

from dial.benchmarking.grids import get
from dial.benchmarking.results import Result, gather, publish

DIGITS = get("digits")


def finish(out: Path, row: str, seed: int) -> None:
    folder = out / "runs" / "mnist-optdigits" / row / f"seed-{seed}"
    folder.mkdir(parents=True)
    keys = ("source", "target", "method", "backbone", "reference", "epochs", "steps", "seconds")
    result = dict.fromkeys(keys, 1) | {"seed": seed, "target_accuracy": 0.5}
    (folder / "config.json").write_text(json.dumps({"settings": {"lr": 1}}))
    (folder / "result.json").write_text(json.dumps(result))


def test_finished_cells_come_in_the_order_of_the_benchmark(tmp_path: Path) -> None:
    for row, seed in (("dial", 0), ("source_only", 10), ("source_only", 2), ("strange", 0)):
        finish(tmp_path, row, seed)
    (tmp_path / "runs" / "mnist-optdigits" / "dan" / "seed-0").mkdir(parents=True)  # not finished
    found = [(result["row"], result["seed"]) for result in gather(tmp_path, DIGITS)]
    assert found == [("source_only", 2), ("source_only", 10), ("dial", 0)]


def test_a_cell_that_ends_while_others_are_written_is_not_lost(tmp_path: Path) -> None:
    finish(tmp_path, "dial", 0)
    written: list[int] = []

    def write(results: list[Result]) -> None:
        written.append(len(results))
        if len(written) == 1:  # another process ends a cell just now
            finish(tmp_path, "dan", 0)

    assert len(publish(tmp_path, DIGITS, write)) == 2
    assert written == [1, 2]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
