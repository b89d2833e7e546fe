"""The results of a grid: collected from the run folders of its cells and from results.jsonl."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from dial import files
from dial.benchmarking import record
from dial.benchmarking.benchmarks import Benchmark, Row, Task
from dial.deployment.runs import read_records
from dial.errors import DialError
from dial.files.records import parse_json
from dial.training import run_folder
from dial.training.run_files import StoredSettings

Result = dict[str, Any]


class Cell(TypedDict):
    """What a line of results.jsonl has at least."""

    benchmark: str
    task: str
    row: str
    seed: int
    source: str
    target: str
    accuracy: float | None
    seconds: float
    method: str
    backbone: str
    reference: str | None
    epochs: int
    steps: int
    settings: StoredSettings
    targets: NotRequired[dict[str, float | None]]


_KEYS = tuple(name for name in Cell.__annotations__ if name != "targets")


def gather(out: Path, benchmark: Benchmark) -> list[Result]:
    """The results of finished cells in the benchmark's order: from runs, else `results.jsonl`."""
    lines, results = read(out, benchmark), []
    for task in benchmark.tasks:
        for row in benchmark.rows:
            cells = {r["seed"]: r for r in lines if (r["task"], r["row"]) == (task.key, row.name)}
            for path in (out / "runs" / task.key / row.name).glob("seed-*/result.json"):
                result = _read_run(path.parent, benchmark, task, row)
                cells[result["seed"]] = result
            results += [cells[seed] for seed in sorted(cells)]
    return results


def _read_run(folder: Path, benchmark: Benchmark, task: Task, row: Row) -> Result:
    """The result of a cell from its run folder."""
    run, _ = read_records(folder)
    config = run_folder.read_config(folder / "config.json")
    try:
        config["settings"]  # raises for a damaged file
        cell = {"benchmark": benchmark.name, "task": task.key, "row": row.name}
        values = {"accuracy": run["target_accuracy"], "settings": run_folder.requested(config)}
        result = run | cell | values
        several = {name: each["target_accuracy"] for name, each in run.get("targets", {}).items()}
        return {key: result[key] for key in _KEYS} | ({"targets": several} if several else {})
    except KeyError as error:
        wanted, fix = f"a sound run in {folder}", "remove that folder, and run the benchmark again"
        name = "result.json or config.json"
        raise record.damaged(wanted, error, fix=fix, name=name) from error


def read(out: Path, benchmark: Benchmark) -> list[Result]:
    """What `results.jsonl` holds; raises for results of another benchmark."""
    path = out / "results.jsonl"
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().splitlines()
        results: list[Result] = [parse_json(line, Cell) for line in lines]
    except (OSError, ValueError) as error:
        fix = "replace it by a sound copy; if removed, it is rebuilt from the runs beside it"
        raise record.damaged(f"the results of a benchmark in {path}", error, fix=fix) from error
    for result in results:
        record.check_name(out, benchmark, result["benchmark"])
    names = {f"{task.key} {row.name}" for task in benchmark.tasks for row in benchmark.rows}
    present = dict.fromkeys(f"{result['task']} {result['row']}" for result in results)
    strange = ", ".join(name for name in present if name not in names)
    if strange:
        wanted = f"tasks and rows of the benchmark {benchmark.name} in {path}"
        raise DialError(wanted=wanted, got=strange, fix="name another --out")
    return results


def publish(out: Path, benchmark: Benchmark, write: Callable[[list[Result]], None]) -> list[Result]:
    """Gather the results, write `results.jsonl` and call `write`; returns the results.

    Other processes may finish cells of the same grid meanwhile and write the same files. Whoever
    writes last gathers again afterwards, so that the files are never older than the last cell.
    """
    while True:
        results = gather(out, benchmark)
        if results:
            lines = [json.dumps(result) for result in results]
            files.write_text(out / "results.jsonl", "\n".join(lines) + "\n")
            write(results)
        if gather(out, benchmark) == results:
            return results
