"""benchmark.json, the record of a grid's folder: its benchmark and settings, and their command."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from dial import files
from dial.benchmarking.benchmarks import Benchmark
from dial.errors import DialError
from dial.files.records import read_json
from dial.training.settings import preset_for

OPTIONS = ("backbone", "weights", "image_size", "epochs", "steps", "batch_size", "lr")
"""Settings that `dial bench` has options for."""


class Record(TypedDict):
    """What benchmark.json holds."""

    benchmark: str
    preset: str
    settings: dict[str, Any]


def write(out: Path, benchmark: Benchmark, *, preset: str, settings: Mapping[str, Any]) -> None:
    """Record the benchmark in its folder, with the preset and the settings in place of its own."""
    settings = json.loads(json.dumps(settings, default=repr))
    record = {"benchmark": benchmark.name, "preset": preset, "settings": settings}
    files.write_json(out / "benchmark.json", record)


def read(out: Path) -> dict[str, Any] | None:
    """The record of a folder; None if it has none."""
    path = out / "benchmark.json"
    if not path.exists():
        return None
    try:
        record: dict[str, Any] = read_json(path, Record)
        return record
    except (OSError, ValueError) as error:
        fix = "remove it, and run the benchmark again with the command that began it"
        raise damaged(f"the record of a benchmark in {path}", error, fix=fix) from error


def damaged(wanted: str, error: Exception, *, fix: str, name: str = "file") -> DialError:
    """The error about a file that cannot be read."""
    got = f"a damaged {name} ({type(error).__name__}: {error})"
    return DialError(wanted=wanted, got=got, fix=fix)


def check(out: Path, benchmark: Benchmark) -> None:
    """Refuse a folder that belongs to another benchmark."""
    record, older = read(out), out / "runs" / "benchmark.txt"  # begun before there was a record
    if record or older.exists():
        check_name(
            out, benchmark, record["benchmark"] if record else older.read_text(errors="replace")
        )


def check_name(out: Path, benchmark: Benchmark, name: str) -> None:
    """Refuse the folder if `name` is another benchmark's."""
    if name != benchmark.name:
        wanted = f"a folder of the benchmark {benchmark.name}"
        raise DialError(wanted=wanted, got=f"{out}, which holds {name}", fix="name another --out")


def command(out: Path, benchmark: Benchmark, results: Sequence[Mapping[str, Any]]) -> str | None:
    """The command that gives these results; None without a record, or if no options give them."""
    record = read(out)
    if record is None or not set(record["settings"]) <= set(OPTIONS):
        return None
    preset, settings = record["preset"], record["settings"]
    words = ["dial", "bench", benchmark.name, "--out", "DIR"]
    if any(not task.sources[0].startswith("digits:") for task in benchmark.tasks):
        words += ["--data", "DATA"]
    if preset != preset_for(settings.get("backbone"), default=benchmark.preset):
        words += ["--preset", preset]
    for name in OPTIONS:
        if name in settings:
            words += [f"--{name.replace('_', '-')}", str(settings[name])]
    tasks = [task for task in benchmark.tasks if any(r["task"] == task.key for r in results)]
    if len(tasks) < len(benchmark.tasks):
        words += ["--tasks", ",".join(task.key for task in tasks)]
    rows = [row for row in benchmark.rows if any(r["row"] == row.name for r in results)]
    if tuple(rows) != benchmark.choose_rows(None):
        words += ["--methods", ",".join(row.name for row in rows)]
    seeds = sorted({result["seed"] for result in results})
    return shlex.join([*words, "--seeds", ",".join(map(str, seeds))])
