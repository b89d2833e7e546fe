"""DIAL beside other libraries of domain adaptation: one network, the same images, one run.

    make peers
    .venv-peers/bin/python -m benchmarks.peers --out DIR --tasks digits,A-W,W-A --data DATA

Every cell runs in a process of its own, so that its peak memory is its own. A finished cell is in
`DIR/peers.jsonl` and is not repeated; the table is `DIR/peers.md`. Labels of the target are used
for scoring alone.
"""

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from typing import Any

from dial import files, methods
from dial.errors import DialError

Result = dict[str, Any]

TASKS = ("digits", *(f"{a}-{b}" for a, b in permutations("AWD", 2)))
HEADS = ("task", "library", "method", "accuracy", "ms a step", "peak MB", "seconds")
GFK = "GFK, which the paper's tables have too, is in none of these libraries."


@dataclass(frozen=True)
class Library:
    """A library, the file here that drives it, its rows, and the modules that it needs."""

    distribution: str
    driver: str
    rows: tuple[str, ...]
    needs: tuple[str, ...] = ()


_OURS = tuple(name for name in ("dial", "source_only", "mcc", "revgrad") if name in methods.names())
_SKADA = ("DeepCORAL", "DANN", "MCC", "no adaptation", "TCA", "SA", "CORAL", "LinearOT")
LIBRARIES = {
    "dial": Library("dial-da", "ours", _OURS),
    "skada": Library("skada", "skada", _SKADA, ("skada", "skorch", "ot")),
    "pytorch-adapt": Library(
        "pytorch-adapt", "pytorch_adapt", ("DANN", "MCC"), ("pytorch_adapt", "pkg_resources")
    ),
}
ROWS = tuple(dict.fromkeys(row for library in LIBRARIES.values() for row in library.rows))


@dataclass(frozen=True)
class Cell:
    """One row of the table for one seed."""

    task: str
    library: str
    method: str
    seed: int
    steps: int
    image_size: int | None

    @property
    def title(self) -> str:
        """The cell in the log."""
        return f"{self.task} {self.library} {self.method} seed {self.seed}"


def plan(
    tasks: Iterable[str],
    libraries: Iterable[str],
    rows: Sequence[str],
    *,
    seeds: Iterable[int],
    steps: int,
    image_size: int,
) -> list[Cell]:
    """Returns all cells, seed by seed; digits have a size of their own."""
    return [
        Cell(task, library, row, seed, steps, None if task == "digits" else image_size)
        for seed in seeds
        for task in tasks
        for library in libraries
        for row in LIBRARIES[library].rows
        if row in rows
    ]


def require(libraries: Iterable[str]) -> None:
    """Raises a DialError that names the modules which are not installed."""
    needed = [name for library in libraries for name in LIBRARIES[library].needs]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise DialError(
            wanted=f"the libraries to compare with ({', '.join(needed)})",
            got=f"an environment without {', '.join(missing)}",
            fix="run `make peers`, and this with .venv-peers/bin/python; or --libraries dial",
        )


def read(path: Path) -> dict[Cell, Result]:
    """Returns the results so far by their cells; lines that were cut off are left out."""
    results = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            result = json.loads(line)
            results[Cell(**result["cell"])] = result
        except (ValueError, KeyError, TypeError):
            print(f"left out of {path.name}, because it cannot be read: {line[:60]}")
    return results


def run_missing(cells: Sequence[Cell], out: Path, more: Sequence[str]) -> dict[Cell, Result]:
    """Run the cells without a result, and write the files after each; returns all results."""
    results = read(out / "peers.jsonl")
    for number, cell in enumerate(cells, 1):
        if "accuracy" in results.get(cell, {}):
            continue
        print(f"[{number}/{len(cells)}] {cell.title} ...", flush=True)
        results[cell] = result = run(cell, more)
        files.write_text(
            out / "peers.jsonl", "".join(json.dumps(r) + "\n" for r in results.values())
        )
        files.write_text(out / "peers.md", table(cells, results))
        shown = {k: v for k, v in result.items() if k != "cell"}
        print(f"[{number}/{len(cells)}] {cell.title}: {json.dumps(shown)}", flush=True)
    files.write_text(out / "peers.md", table(cells, results))
    return results


def run(cell: Cell, more: Sequence[str]) -> Result:
    """Run a cell in a process of its own; returns what it measured, or why it failed."""
    base = {"cell": asdict(cell), "version": version(LIBRARIES[cell.library].distribution)}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.peers", *more]
    told = subprocess.run(  # noqa: S603 - this very file
        [*command, "--cell", json.dumps(asdict(cell))], capture_output=True, text=True, check=False
    )
    if told.returncode:
        reason = (told.stderr.strip() or f"ended with code {told.returncode}").splitlines()[-1]
        return base | {"error": reason}
    measured: Result = json.loads(told.stdout.splitlines()[-1])
    return base | measured


def measure(cell: Cell, data: str | None, cache_dir: str | None) -> Result:
    """Run a cell in this process. The clock starts when images and network are there."""
    from benchmarks._peers.task import open_task
    from benchmarks.training import peak

    settings = {"steps": cell.steps, "seed": cell.seed, "image_size": cell.image_size}
    task, labels = open_task(cell.task, **settings, data=data, cache_dir=cache_dir)  # type: ignore[arg-type]
    driver = importlib.import_module(f"benchmarks._peers.{LIBRARIES[cell.library].driver}")
    started = time.perf_counter()
    predicted = driver.predict(cell.method, task)
    seconds = time.perf_counter() - started
    return {
        "accuracy": float((predicted == labels).mean()),
        "step_ms": task.step_milliseconds,
        "peak_mb": peak(),
        "seconds": seconds,
    }


def table(cells: Sequence[Cell], results: dict[Cell, Result]) -> str:
    """Returns a Markdown table: a line for each row of each task, the mean over its seeds."""
    rows: dict[tuple[str, str, str], list[Result]] = {}
    for cell in cells:
        if cell in results:
            key = (cell.task, cell.library, cell.method)
            rows.setdefault(key, []).append(results[cell])
    lines = [HEADS, ("---",) * len(HEADS)]
    for (task, library, method), found in rows.items():
        done = [result for result in found if "accuracy" in result]
        name = f"{library} {found[-1]['version']}"
        if done:
            columns = [_accuracies(done)]
            columns += [_mean(done, field) for field in ("step_ms", "peak_mb", "seconds")]
        else:
            columns = [f"failed: {found[-1]['error']}".replace("|", "/"), "-", "-", "-"]
        lines.append((task, name, method, *columns))
    steps = ", ".join(sorted({str(cell.steps) for cell in cells}))
    seeds = ", ".join(map(str, sorted({cell.seed for cell in cells})))
    notes = f"{steps} steps, seeds {seeds}; accuracy on the target in percent. {GFK}"
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{notes}\n"


def _accuracies(results: Sequence[Result]) -> str:
    values = [100 * result["accuracy"] for result in results]
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def _mean(results: Sequence[Result], field: str) -> str:
    values = [result[field] for result in results if result[field] is not None]
    return f"{statistics.mean(values):.0f}" if values else "-"


def main() -> None:
    """Run what is missing, and write the table; or one cell, as its own process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    parser.add_argument("--tasks", default="digits", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--libraries", default=",".join(LIBRARIES), help="by default all")
    parser.add_argument("--methods", default=",".join(ROWS), help="rows; by default all")
    parser.add_argument("--data", help="folder that holds office31")
    parser.add_argument("--cache-dir", help="where decoded images are kept")
    parser.add_argument("--image-size", type=int, default=128, help="of Office-31")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        cell = Cell(**json.loads(options.cell))
        print(json.dumps(measure(cell, options.data, options.cache_dir)))
        return
    lists = [each.split(",") for each in (options.tasks, options.libraries, options.methods)]
    for names, known in zip(lists, (TASKS, LIBRARIES, ROWS), strict=True):
        if not set(names) <= set(known):
            parser.error(f"wanted some of {', '.join(known)}, got {', '.join(names)}")
    try:
        require(lists[1])
    except DialError as error:
        parser.error(str(error))
    seeds = [int(seed) for seed in options.seeds.split(",")]
    sizes = {"steps": options.steps, "image_size": options.image_size}
    cells = plan(*lists, seeds=seeds, **sizes)
    places = {"--data": options.data, "--cache-dir": options.cache_dir}
    more = [part for pair in places.items() if pair[1] for part in pair]
    results = run_missing(cells, options.out, more)
    print(f"\n{table(cells, results)}")
    if any("accuracy" not in results[cell] for cell in cells):
        sys.exit(1)


if __name__ == "__main__":
    main()
