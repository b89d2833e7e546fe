"""Run what is missing of a benchmark's grid, cell by cell, and write its files after each."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dial import backbones, files
from dial import methods as adaptation_methods
from dial.benchmarking import benchmarks, record, rendering
from dial.benchmarking.benchmarks import Benchmark
from dial.benchmarking.cells import Cell, check_settings, plan, read_seeds, take_shard
from dial.benchmarking.results import Result, gather, publish, read
from dial.benchmarking.tables import Table, tabulate
from dial.console import GridProgress
from dial.data.batches import parse_batch_size
from dial.data.datasets import open_domain
from dial.data.domain import as_source
from dial.errors import DialError
from dial.pipeline import adapt
from dial.training import grid
from dial.training.cluster import Cluster, connected
from dial.training.engine import Interrupted
from dial.training.launch import Execution, launch


@dataclass(frozen=True)
class Outcome:
    """The table of a grid, the results of its finished cells, and why others failed."""

    table: Table
    results: list[Result]
    failed: dict[str, str]


def bench(
    name: str,
    *,
    out: str | Path,
    data: str | Path | None = None,
    tasks: str | None = None,
    methods: str | None = None,
    seeds: str = "0,1,2",
    preset: str | None = None,
    shard: str | None = None,
    tables_only: bool = False,
    quiet: bool = False,
    ray: str | None = None,
    execution: dict[str, Any] | None = None,
    **settings: Any,
) -> Outcome:
    """Run what is missing of a benchmark's grid in the folder `out`, and write its tables.

    Args:
        name: of the benchmark.
        out: folder of the runs, of `results.jsonl` and of the tables.
        data: folder that holds the known data sets.
        tasks: those to run, like `A-W,amazon-dslr`; all by default.
        methods: rows to run, by name; by default all but those that run on request.
        seeds: like `0,1,2`.
        preset: settings to start from; by default the benchmark's, or the backbone's own.
        shard: `i/n`, to run the i-th of n shares of the cells.
        tables_only: run nothing, and write the tables of the finished cells.
        quiet: show no progress.
        ray: the Ray cluster that runs the cells: `auto`, `local` or `HOST:PORT`; by default this
            process runs one after the other.
        execution: `device`, `workers`, `cache_dir`, ... of `dial.adapt`.
        settings: fields of `Settings` in place of the preset's.

    Raises:
        DialError: something wrong with the arguments. A cell that fails does not raise.
        Interrupted: stopped by SIGTERM or Ctrl-C; the same call resumes.
    """
    benchmark, folder = benchmarks.get(name), Path(out)
    columns, rows = benchmark.choose_tasks(tasks), benchmark.choose_rows(methods)
    record.check(folder, benchmark)
    if tables_only:
        if gather(folder, benchmark):
            return _publish(folder, benchmark, partial(tabulate, benchmark), page=True)
        wanted = f"a folder with finished cells of the benchmark {name}"
        fix = "run it without --tables first, or check --out"
        raise DialError(wanted=wanted, got=f"{folder}, which has none", fix=fix)
    plan_all = partial(plan, benchmark, out=folder, tasks=columns, rows=rows)
    cells = plan_all(seeds=read_seeds(seeds), preset=preset, settings=settings)
    share = take_shard(cells, shard)
    check_settings(cells, folder, read(folder, benchmark))
    table_of = partial(tabulate, benchmark, rows=rows, tasks=columns)
    publish = partial(_publish, folder, benchmark, table_of)
    missing, failed = [cell for cell in share if not grid.has_result(cell)], dict[str, str]()
    for cell in share:
        if cell not in missing:
            _tidy(cell)
    if missing:
        more = (execution or {}) | {"data": data}
        costs = _open(missing, more, here=ray is None)
        with connected(ray, device=more.get("device") or "auto") as cluster:
            if cluster is not None:
                cluster.require_shared(folder, *([Path(data)] if data else []))
            record.write(folder, benchmark, preset=cells[0].preset, settings=cells[0].overrides)
            done, at_once = len(share) - len(missing), cluster.at_once if cluster else 1
            with GridProgress(costs, done=done, quiet=quiet, at_once=at_once) as progress:
                run = partial(_run, missing, more, cluster=cluster, progress=progress)
                failed = run(publish=partial(publish, page=False))
    return replace(publish(page=True), failed=failed)


def _publish(
    out: Path, benchmark: Benchmark, table_of: Callable[[list[Result]], Table], *, page: bool
) -> Outcome:
    """Write the results and the tables, and with `page` also the page and the figure."""

    def write(results: list[Result]) -> None:
        command = record.command(out, benchmark, results)
        rendering.write(out, table_of(results), results, command=command, with_page=page)

    results = publish(out, benchmark, write)
    return Outcome(table_of(results), results, {})


def _run(
    cells: list[Cell],
    more: dict[str, Any],
    *,
    publish: Callable[[], Any],
    progress: GridProgress,
    cluster: Cluster | None,
) -> dict[str, str]:
    """Run the cells that no other process runs; returns why those failed that did."""
    if cluster is not None:
        progress.say(f"{len(cells)} cells on Ray, up to {cluster.at_once} at once")

    def report(outcome: grid.Outcome[Cell]) -> None:
        title = outcome.cell.title
        if outcome.status == "finished":
            publish()
            accuracy, seconds = outcome.value
            progress.finished(title, accuracy=accuracy, seconds=seconds)
        else:
            show = progress.failed if outcome.status == "failed" else progress.skipped
            show(title, outcome.reason)

    with _terminable():
        outcomes = grid.run_grid(
            cells,
            partial(_run_cell, more=more),
            wait=False,
            keep_going=True,
            begin=lambda cell: progress.begin(cell.title),
            report=report,
            cluster=cluster,
        )
    return {o.cell.title: o.reason for o in outcomes if o.status == "failed"}


def _run_cell(cell: Cell, *, more: dict[str, Any]) -> tuple[float, float]:
    """Run a cell, or resume it; returns its accuracy and how many seconds it took here."""
    started = time.perf_counter()
    accuracy = _train(cell, more)
    _tidy(cell)
    return accuracy, time.perf_counter() - started


def _train(cell: Cell, more: dict[str, Any]) -> float:
    """Run a cell, or resume it; returns its accuracy at the last epoch."""
    run = adapt(
        [*cell.task.sources],
        [*cell.task.targets],
        out=cell.folder,
        preset=cell.preset,
        resume=True,
        quiet=True,
        report=False,
        **cell.options(),
        **more,
    )
    return float(run.result["target_accuracy"])


def _tidy(cell: Cell) -> None:
    """Remove what a finished cell does not need: a checkpoint is several times its model."""
    files.remove_leftovers(cell.folder)
    (cell.folder / "last.ckpt").unlink(missing_ok=True)


def _open(cells: Sequence[Cell], more: dict[str, Any], *, here: bool) -> dict[str, float]:
    """Open what the cells need, so that what would fail them all raises once and at the start.

    `here` is whether this machine's device runs them. Returns the cost of each cell by title:
    images in training, and a third of those that only pass.
    """
    execution = {key: value for key, value in more.items() if value is not None and key != "data"}
    alone = replace(Execution(**execution), devices=1)
    if here:
        launch(lambda _: None, execution=alone)
    names = dict.fromkeys(name for cell in cells for name in cell.task.domains)
    domains = {name: open_domain(name, data=more["data"]) for name in names}
    settings = cells[0].settings()
    classes = as_source(domains[cells[0].task.sources[0]]).labels.classes
    backbones.create(settings.backbone, num_classes=len(classes), weights=settings.weights)
    costs = {}
    for cell in cells:
        sides = cell.task.sources, cell.task.targets
        source, target = (sum(len(domains[name].images) for name in side) for side in sides)
        kind = adaptation_methods.kind(cell.row.method)
        images = {"source": source, "target": target if kind.needs_target else 0}
        sizes = parse_batch_size(settings.batch_size, **images, targets=len(cell.task.targets))
        steps = settings.total_steps(max(1, source // sizes.source)) if kind.trains else 0
        passes = 2 * (source + target)  # before and after training
        trained = sizes.source + len(cell.task.targets) * sizes.target
        costs[cell.title] = steps * trained + passes / 3
    return costs


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM stops the grid as Ctrl-C does, also while no training is under way."""

    def stop(number: int, frame: Any) -> None:  # noqa: ARG001
        raise Interrupted

    with ExitStack() as stack:
        with suppress(ValueError):  # not in the main thread, where signals do not arrive
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, stop))
        yield
