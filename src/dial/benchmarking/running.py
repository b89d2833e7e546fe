"""Run a benchmark's grid: what is missing, cell by cell, and the files after each."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dial import backbones, methods
from dial.benchmarking import cells as planning
from dial.benchmarking import grids, results
from dial.benchmarking.cells import Cell
from dial.benchmarking.progress import GridProgress
from dial.benchmarking.publication import Publication
from dial.benchmarking.tables import Table
from dial.data.batch_size import parse_batch_size
from dial.data.datasets import open_domain
from dial.data.domain import Domain, require_labels
from dial.errors import DialError
from dial.pipeline import adapt
from dial.training.engine import Interrupted
from dial.training.launch import Machine, launch
from dial.training.locking import FileLock


@dataclass(frozen=True)
class Outcome:
    """What a grid has come to: its table, the finished cells, and why others failed."""

    table: Table
    results: list[results.Result]
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
    machine: dict[str, Any] | None = None,
    **given: Any,
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
        tables_only: run nothing, gather what is there.
        quiet: show no progress.
        machine: `device`, `workers`, `cache_dir`, ... of `dial.adapt`.
        given: fields of `Settings` in place of the preset's.

    Raises:
        DialError: something wrong with what was asked for. A cell that fails does not raise.
        Interrupted: somebody asked to stop; the same call goes on.
    """
    benchmark, folder = grids.get(name), Path(out)
    chosen_tasks, rows = benchmark.choose_tasks(tasks), benchmark.choose_rows(methods)
    results.check_folder(folder, benchmark)
    failed: dict[str, str] = {}
    if tables_only:
        if not results.gather(folder, benchmark):
            raise DialError(
                wanted=f"a folder with finished cells of the benchmark {name}",
                got=f"{folder}, which has none",
                fix="run it without --tables first, or check --out",
            )
        publication = Publication(folder, benchmark, rows=(), tasks=())
    else:
        publication = Publication(folder, benchmark, rows=rows, tasks=chosen_tasks)
        planned = planning.plan(
            benchmark,
            out=folder,
            tasks=chosen_tasks,
            rows=rows,
            seeds=planning.read_seeds(seeds),
            preset=preset,
            given=given,
        )
        share = planning.take_shard(planned, shard)
        planning.check_settings(planned, folder, results.read(folder, benchmark))
        where = (machine or {}) | {"data": data}
        failed = _run(share, publication, quiet=quiet, machine=where)
    found = results.publish(folder, benchmark, publication.write_all)
    return Outcome(publication.table(found), found, failed)


def _run(
    cells: Sequence[Cell],
    publication: Publication,
    *,
    quiet: bool,
    machine: dict[str, Any],
) -> dict[str, str]:
    """Run the cells that have no result; why those failed that did."""
    missing = [cell for cell in cells if not cell.finished]
    for cell in cells:
        if cell.finished:
            _drop_checkpoint(cell)
    if not missing:
        return {}
    domains = _open(missing, machine)
    results.claim(publication.out, publication.benchmark)
    failed: dict[str, str] = {}
    costs = [_cost(cell, domains) for cell in missing]
    with _terminable(), GridProgress(costs, done=len(cells) - len(missing), quiet=quiet) as bar:
        for cell in missing:
            with FileLock(cell.folder.with_suffix(".lock")).tried() as ours:
                if not ours or cell.finished:
                    told = "another process has finished it" if ours else "another process is at it"
                    bar.skipped(cell.title, told)
                    continue
                bar.begin(cell.title)
                started = time.perf_counter()
                try:
                    accuracy = _train(cell, machine)
                except Exception as error:  # noqa: BLE001 - whatever it is, the others can run
                    failed[cell.title] = _reason(error)
                    bar.failed(cell.title, failed[cell.title])
                    continue
                _drop_checkpoint(cell)
            results.publish(publication.out, publication.benchmark, publication.write_tables)
            bar.finished(cell.title, accuracy=accuracy, seconds=time.perf_counter() - started)
    return failed


def _train(cell: Cell, machine: dict[str, Any]) -> float:
    """Run a cell from where it was left; its accuracy at the last epoch."""
    run = adapt(
        cell.task.source,
        cell.task.target,
        out=cell.folder,
        preset=cell.preset,
        resume=True,
        quiet=True,
        report=False,
        **cell.options(),
        **machine,
    )
    return float(run.result["target_accuracy"])


def _reason(error: Exception) -> str:
    """Why a cell failed, in one line."""
    if isinstance(error, DialError):
        return str(error)
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def _drop_checkpoint(cell: Cell) -> None:
    """A finished cell is never resumed, and its checkpoint is several times its model."""
    (cell.folder / "last.ckpt").unlink(missing_ok=True)


def _open(cells: Sequence[Cell], machine: dict[str, Any]) -> dict[str, Domain]:
    """All domains, to hear once and at the start of what every cell would fail from."""
    given = Machine(**{key: value for key, value in machine.items() if value is not None})
    launch(lambda _: None, machine=replace(given, devices=1))
    names = dict.fromkeys(name for cell in cells for name in (cell.task.source, cell.task.target))
    domains = {name: open_domain(name, data=given.data) for name in names}
    chosen = cells[0].settings()
    classes = require_labels(domains[cells[0].task.source]).classes
    backbones.create(chosen.backbone, num_classes=len(classes), weights=chosen.weights)
    for cell in cells:
        source, target = (len(domains[d].images) for d in (cell.task.source, cell.task.target))
        seen = target if _sees_target(cell) else 0
        parse_batch_size(chosen.batch_size, source=source, target=seen)
    return domains


def _sees_target(cell: Cell) -> bool:
    """Whether its steps look at the target's images."""
    return methods.kind(cell.row.method).needs_target


def _cost(cell: Cell, domains: dict[str, Domain]) -> float:
    """How long it takes, in any unit: by its steps, or by the source's images.

    A step that looks at the target too takes about twice as long.
    """
    chosen = cell.settings()
    length = chosen.steps or chosen.epochs * len(domains[cell.task.source].images)
    return float(length * (2 if _sees_target(cell) else 1))


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM stops the grid as Ctrl-C does, also while no training is under way."""

    def stop(number: int, frame: Any) -> None:  # noqa: ARG001
        raise Interrupted

    try:
        former = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread, where signals do not arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
