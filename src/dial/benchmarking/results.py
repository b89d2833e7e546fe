"""What the cells of a grid measured, gathered from their run folders, and the files made of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dial import files
from dial.benchmarking.grids import Benchmark, Row, Task
from dial.errors import DialError
from dial.training import run_folder

Result = dict[str, Any]

_KEYS = (
    *("benchmark", "task", "row", "seed", "source", "target", "accuracy", "seconds"),
    *("method", "backbone", "reference", "epochs", "steps", "settings"),
)


def gather(out: Path, benchmark: Benchmark) -> list[Result]:
    """The finished cells, in the order of the benchmark's tasks and rows and of the seeds.

    They are read from their run folders. What only `results.jsonl` tells of, as in a copy of
    published results, is taken from there.

    Raises:
        DialError: a damaged file, or results of another benchmark.
    """
    listed, found = read(out, benchmark), []
    for task in benchmark.tasks:
        for row in benchmark.rows:
            cells = {r["seed"]: r for r in listed if (r["task"], r["row"]) == (task.key, row.name)}
            for path in (out / "runs" / task.key / row.name).glob("seed-*/result.json"):
                measured = _measured(path.parent, benchmark, task, row)
                cells[measured["seed"]] = measured
            found += [cells[seed] for seed in sorted(cells)]
    return found


def _measured(folder: Path, benchmark: Benchmark, task: Task, row: Row) -> Result:
    """What the run of a cell came to."""
    result, _ = run_folder.read_records(folder)
    config = run_folder.read_config(folder / "config.json")
    try:
        cell = {"benchmark": benchmark.name, "task": task.key, "row": row.name}
        told = {"accuracy": result["target_accuracy"], "settings": config["settings"]}
        known = result | cell | told
        return {key: known[key] for key in _KEYS}
    except (KeyError, TypeError) as error:
        raise DialError(
            wanted=f"a sound run in {folder}",
            got=f"a damaged result.json or config.json ({type(error).__name__}: {error})",
            fix="remove that folder, and run the benchmark again",
        ) from error


def read(out: Path, benchmark: Benchmark) -> list[Result]:
    """What `results.jsonl` holds.

    Raises:
        DialError: a damaged file, or results of another benchmark.
    """
    path = out / "results.jsonl"
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found: list[Result] = [line | {key: line[key] for key in _KEYS} for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DialError(
            wanted=f"the results of a benchmark in {path}",
            got=f"a damaged file ({type(error).__name__}: {error})",
            fix="put a sound copy in its place; removed, it is made again of the runs beside it",
        ) from error
    for result in found:
        _check_owner(out, benchmark, result["benchmark"])
    known = {(task.key, row.name) for task in benchmark.tasks for row in benchmark.rows}
    strange = [r for r in found if (r["task"], r["row"]) not in known]
    if strange:
        raise DialError(
            wanted=f"tasks and rows of the benchmark {benchmark.name} in {path}",
            got=", ".join(dict.fromkeys(f"{r['task']} {r['row']}" for r in strange)),
            fix="name another --out",
        )
    return found


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


def claim(out: Path, benchmark: Benchmark) -> None:
    """Note whose folder it is, before the first result does."""
    files.write_text(_owner(out), benchmark.name)


def check_folder(out: Path, benchmark: Benchmark) -> None:
    """Refuse a folder that holds another benchmark, or damaged results.

    Raises:
        DialError: says what it holds.
    """
    if _owner(out).exists():
        _check_owner(out, benchmark, _owner(out).read_text())
    read(out, benchmark)


def _owner(out: Path) -> Path:
    return out / "runs" / "benchmark.txt"


def _check_owner(out: Path, benchmark: Benchmark, held: str) -> None:
    if held != benchmark.name:
        raise DialError(
            wanted=f"a folder of the benchmark {benchmark.name}",
            got=f"{out}, which holds {held}",
            fix="name another --out",
        )
