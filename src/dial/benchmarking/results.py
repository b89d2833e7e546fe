"""What the cells of a grid measured, gathered from their run folders, and the files made of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dial import files
from dial.benchmarking.grids import Benchmark
from dial.errors import DialError

Result = dict[str, Any]


def gather(out: Path, benchmark: Benchmark) -> list[Result]:
    """The finished cells, in the order of the benchmark's tasks and rows and of the seeds."""
    found = []
    for task in benchmark.tasks:
        for row in benchmark.rows:
            for path in (out / "runs" / task.key / row.name).glob("seed-*/result.json"):
                result = json.loads(path.read_text())
                config = json.loads((path.parent / "config.json").read_text())
                found.append(
                    {
                        "benchmark": benchmark.name,
                        "task": task.key,
                        "row": row.name,
                        "seed": result["seed"],
                        "source": result["source"],
                        "target": result["target"],
                        "accuracy": result["target_accuracy"],
                        "seconds": result["seconds"],
                        "method": result["method"],
                        "backbone": result["backbone"],
                        "reference": result["reference"],
                        "epochs": result["epochs"],
                        "steps": result["steps"],
                        "settings": config["settings"],
                    }
                )
    places = {task.key: i for i, task in enumerate(benchmark.tasks)}
    lines = {row.name: i for i, row in enumerate(benchmark.rows)}
    return sorted(found, key=lambda r: (places[r["task"]], lines[r["row"]], r["seed"]))


def publish(out: Path, benchmark: Benchmark, write: Callable[[list[Result]], None]) -> list[Result]:
    """Gather, write `results.jsonl` and whatever `write` makes of the results.

    Other processes may finish cells of the same grid meanwhile and write the same files. Whoever
    writes last looks again afterwards, so that what stays is never older than the last cell.
    """
    while True:
        results = gather(out, benchmark)
        if results:
            lines = [json.dumps(result) for result in results]
            files.write_text(out / "results.jsonl", "\n".join(lines) + "\n")
            write(results)
        if gather(out, benchmark) == results:
            return results


def check_folder(out: Path, benchmark: Benchmark) -> None:
    """Refuse a folder that holds another benchmark.

    Raises:
        DialError: its results are of another benchmark.
    """
    path = out / "results.jsonl"
    first = path.read_text().partition("\n")[0] if path.exists() else ""
    held = json.loads(first)["benchmark"] if first else benchmark.name
    if held != benchmark.name:
        raise DialError(
            wanted=f"a folder of the benchmark {benchmark.name}",
            got=f"{out}, which holds {held}",
            fix="name another --out",
        )
