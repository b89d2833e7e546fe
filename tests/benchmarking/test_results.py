"""Results gathered from run folders, also while other processes add to them."""

import json
import shutil
from pathlib import Path

import pytest

from dial import DialError
from dial.benchmarking.benchmarks import get
from dial.benchmarking.results import Result, gather, publish

DIGITS = get("digits")


def finish(out: Path, row: str, seed: int, accuracy: float = 0.5) -> None:
    folder = out / "runs" / "mnist-optdigits" / row / f"seed-{seed}"
    folder.mkdir(parents=True)
    result: dict[str, object] = dict.fromkeys(("epochs", "steps", "seconds"), 1)
    result |= dict.fromkeys(("source", "target", "method", "backbone", "reference"), "any")
    result |= {"seed": seed, "target_accuracy": accuracy}
    (folder / "config.json").write_text(json.dumps({"settings": {"lr": 1}}))
    (folder / "metrics.jsonl").write_text("")
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


def test_published_cells_stay_where_their_runs_are_not(tmp_path: Path) -> None:
    for row, seed in (("dan", 0), ("dial", 0), ("dial", 2)):
        finish(tmp_path, row, seed)
    publish(tmp_path, DIGITS, lambda _: None)
    path = tmp_path / "results.jsonl"
    published = [json.loads(line) | {"note": "by hand"} for line in path.read_text().splitlines()]
    shutil.rmtree(tmp_path / "runs")
    path.write_text("".join(json.dumps(result) + "\n" for result in published))
    assert gather(tmp_path, DIGITS) == published
    finish(tmp_path, "dial", 1)
    finish(tmp_path, "dial", 2, accuracy=0.75)
    publish(tmp_path, DIGITS, lambda _: None)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert kept[:2] == published[:2]
    assert [(line["row"], line["seed"], line["accuracy"]) for line in kept[2:]] == [
        ("dial", 1, 0.5),
        ("dial", 2, 0.75),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("runs/mnist-optdigits/dial/seed-0/result.json", "{", "a damaged result.json"),
        ("runs/mnist-optdigits/dial/seed-0/result.json", "{}", "a damaged result.json"),
        ("runs/mnist-optdigits/dial/seed-0/config.json", "{", "the settings of a run in .*config"),
        ("runs/mnist-optdigits/dial/seed-0/config.json", "[]", "a list in place of an object"),
        (
            "results.jsonl",
            "{}",
            r"results\.jsonl, got a damaged file \(ValueError: the file has no",
        ),
        ("results.jsonl", "{", r"results\.jsonl, got a damaged file \(JSONDecodeError"),
        ("results.jsonl", "[1]", r"results\.jsonl, got a damaged file \(ValueError"),
        ("results.jsonl", b"\xff", r"results\.jsonl, got a damaged file \(UnicodeDecodeError"),
    ],
)
def test_damaged_files_are_named(
    name: str, content: str | bytes, message: str, tmp_path: Path
) -> None:
    finish(tmp_path, "dial", 0)
    publish(tmp_path, DIGITS, lambda _: None)
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DialError, match=message):
        gather(tmp_path, DIGITS)


def test_results_of_rows_that_there_are_not_are_kept(tmp_path: Path) -> None:
    finish(tmp_path, "dial", 0)
    publish(tmp_path, DIGITS, lambda _: None)
    path = tmp_path / "results.jsonl"
    path.write_text(before := path.read_text().replace('"row": "dial"', '"row": "magic"'))
    with pytest.raises(DialError, match=r"rows of the benchmark digits .*, got .* magic"):
        publish(tmp_path, DIGITS, lambda _: None)
    assert path.read_text() == before
