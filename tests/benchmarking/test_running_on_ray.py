"""The same grid on a real Ray: the same table, also if workers die."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from dial.benchmarking import bench

from ..conftest import SmallCluster
from .test_running import GRID, ROWS, cell, results
from .test_running import start as start_on_few

start = partial(start_on_few, changes={})  # Ray's processes have all digits
TABLES = ("table.md", "table.csv", "table.tex", "index.html")


def test_the_table_is_the_same(tmp_path: Path, cluster: SmallCluster) -> None:
    tmp_path, whole = tmp_path / "ray", tmp_path / "whole"
    bench("digits", out=whole, quiet=True, **GRID)
    process = start(tmp_path, f"--ray={cluster.address}")
    _, told = process.communicate()
    assert process.returncode == 0, told
    first, *lines = told.splitlines()
    assert first == "3 cells on Ray, up to 2 at once"
    assert [line.partition(" mnist")[0] for line in lines] == [f"cell {n}/3" for n in (1, 2, 3)]
    assert results(tmp_path) == results(whole)
    for name in TABLES:
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()
    for row in ROWS:
        ours, theirs = (cell(out, row) / "model.safetensors" for out in (tmp_path, whole))
        assert ours.read_bytes() == theirs.read_bytes()
    assert not bench("digits", out=tmp_path, quiet=True, ray="nowhere", **GRID).failed


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(tmp_path: Path, cluster: SmallCluster) -> None:
    # An epoch is 7 of the 10 steps.
    changes = {"tasks": "optdigits-mnist", "methods": "dial", "batch_size": "256+8"}
    grid, whole, killed = GRID | changes | {"steps": 10}, tmp_path / "whole", tmp_path / "killed"
    bench("digits", out=whole, quiet=True, **grid)
    process = start(killed, f"--ray={cluster.address}", **grid)
    home = killed / "runs" / "optdigits-mnist" / "dial" / "seed-0"
    while not (home / "last.ckpt").exists() and process.poll() is None:
        time.sleep(0.01)
    (worker,) = cluster.workers("_work")
    os.kill(worker, signal.SIGKILL)
    assert not (home / "result.json").exists()
    _, told = process.communicate()
    assert process.returncode == 0, told
    assert worker not in cluster.workers("")
    assert told.count("\n") == 2
    assert results(killed) == results(whole)
    for name in TABLES:
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_what_fails_there_ends_the_command_here(tmp_path: Path, cluster: SmallCluster) -> None:
    grid = {"methods": "dial", "steps": 20, "lr": 1e30}
    process = start(tmp_path, "--quiet", f"--ray={cluster.address}", **grid)
    _, told = process.communicate()
    assert process.returncode == 2
    assert told.startswith("dial: error: mnist->optdigits dial seed 0: wanted a finite loss")
    assert told.count("\n") == 1


@pytest.mark.slow
def test_stopped_it_says_how_to_go_on(tmp_path: Path, cluster: SmallCluster) -> None:
    process = start(tmp_path, f"--ray={cluster.address}", steps=100_000, methods="source_only")
    while not (cell(tmp_path, "source_only") / "last.ckpt").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate()
    assert process.returncode == 130, told
    assert f"dial: stopped; resume with the same command ({tmp_path})" in told
    assert "Traceback" not in told
    deadline = time.monotonic() + 300
    while cluster.workers("_work") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not cluster.workers("_work")
