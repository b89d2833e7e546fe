"""A real Ray on this machine: what it runs, whom it asks, and what is said where it cannot."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dial import DialError
from dial.training.cluster import Needs, _needs, connected
from dial.training.grid import Outcome, run_grid

from ..commands import run as command
from ..conftest import SmallCluster
from .test_grid import Named, cells_in


def finish(cell: Named) -> int:
    cell.folder.mkdir(exist_ok=True)
    (cell.folder / "result.json").touch()
    return os.getpid()


def fail(cell: Named) -> int:
    if cell.title.endswith("0"):
        raise DialError(wanted="a finite loss", got="nan", fix="try a lower --lr")
    if cell.title.endswith("1"):
        raise RuntimeError("the kernel\nand where")
    return finish(cell)


def die_once(cell: Named) -> int:
    marker = cell.folder.with_name(f"{cell.title}.died")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return finish(cell)


def die(cell: Named) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return finish(cell)


def run(
    cluster: SmallCluster, folder: Path, function: Any, *, count: int = 3, **more: Any
) -> list[Outcome[Named]]:
    options = {"wait": False, "keep_going": True} | more
    with connected(cluster.address) as connection:
        return run_grid(cells_in(folder)[:count], function, cluster=connection, **options)


@pytest.mark.slow
def test_cells_are_tasks_and_each_is_reported_here(cluster: SmallCluster, tmp_path: Path) -> None:
    reported: list[Outcome[Named]] = []
    outcomes = run(cluster, tmp_path, finish, report=reported.append)
    assert outcomes == reported
    assert {outcome.cell for outcome in outcomes} == {*cells_in(tmp_path)[:3]}
    assert {outcome.status for outcome in outcomes} == {"finished"}
    assert os.getpid() not in {outcome.value for outcome in outcomes}
    again = run(cluster, tmp_path, die)
    assert {outcome.reason for outcome in again} == {"another process has finished it"}


@pytest.mark.slow
def test_errors_come_out_as_they_were_raised(cluster: SmallCluster, tmp_path: Path) -> None:
    outcomes = {each.cell.title[-1]: each for each in run(cluster, tmp_path, fail)}
    assert outcomes["0"].reason == "wanted a finite loss, got nan; fix: try a lower --lr"
    assert outcomes["1"].reason == "RuntimeError: the kernel"
    assert outcomes["2"].status == "finished"
    with pytest.raises(DialError, match=r"^wanted a finite loss, got nan; fix: try a lower --lr$"):
        run(cluster, tmp_path, fail, count=1, keep_going=False)


def test_a_worker_that_dies_is_replaced(
    cluster: SmallCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (outcome,) = run(cluster, tmp_path, die_once, count=1)
    assert outcome.status == "finished"
    assert len([*tmp_path.glob("*.died")]) == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_cell_that_kills_every_worker_is_given_up(cluster: SmallCluster, tmp_path: Path) -> None:
    (outcome,) = run(cluster, tmp_path, die, count=1)
    assert outcome.status == "failed"
    assert outcome.reason.startswith("wanted a worker of the Ray cluster that ends what it began")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"got '127\.0\.0\.1:1' \(Connection refused\)"),
        ("nonsense", r"auto for one that runs, local for this machine, or HOST:PORT, got 'nonsens"),
        ("ray://here:10001", "got 'ray://here:10001'"),
    ],
)
def test_no_such_cluster(address: str, message: str) -> None:
    pytest.importorskip("ray", reason='needs pip install "dial-da[ray]"')
    started = time.monotonic()
    with pytest.raises(DialError, match=message), connected(address):
        pass
    assert time.monotonic() - started < 20


def test_no_cluster_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason='needs pip install "dial-da[ray]"')
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # others on this machine may have one
    with pytest.raises(DialError, match=r"got '127\.0\.0\.1:1' \(Conn"), connected("auto"):
        pass


@pytest.mark.slow
def test_a_cluster_with_another_token(cluster: SmallCluster, tmp_path: Path) -> None:
    words = ["bench", "digits", "--out", str(tmp_path), "--ray", cluster.address]
    made = subprocess.run(
        [sys.executable, "-c", "from dial.cli import main; main()", *words],
        env=os.environ | {"RAY_AUTH_TOKEN": "another"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 2, made.stderr
    assert made.stderr.startswith("dial: error: wanted the token of the Ray cluster at")
    assert made.stderr.count("\n") == 1


def test_auto_is_the_cluster_of_the_environment(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    with connected("auto") as connection:
        assert connection is not None
        assert connection.at_once == 2


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r'the package ray, got an .* not installed; fix: pip install "dial-da\[ray\]"'
    with pytest.raises(DialError, match=message), connected("local"):
        pass


def test_what_a_run_needs() -> None:
    small, large = {"CPU": 4.0}, {"CPU": 2.0, "GPU": 2.0}  # torch has one thread in tests
    assert _needs([small], "auto", 1) == _needs([small, large], "cpu", 1) == Needs(1, 0)
    assert _needs([small, large], "auto", 1) == Needs(1, 1)
    assert _needs([small, large], "cuda:0", 2) == Needs(2, 2)
    assert _needs([small], "cpu", 3) == Needs(3, 0)
    with pytest.raises(DialError, match="with 1 CPUs and 1 GPUs, got 1 machines, with at most 4 C"):
        _needs([small], "cuda", 1)
    with pytest.raises(DialError, match="got 0 machines"):
        _needs([], "cpu", 1)


@pytest.mark.slow
def test_a_folder_that_is_not_shared(cluster: SmallCluster, tmp_path: Path) -> None:
    """A file system that this process alone has mounted, in a namespace of its own."""
    unshare = [shutil.which("unshare") or "false", "-m"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user cannot mount anything here")
    code = "from dial.cli import main; main()"
    words = ["bench", "digits", "--out", str(tmp_path), "--ray", cluster.address]
    inside = f'mount -t tmpfs none {tmp_path} && exec "$@"'
    made = subprocess.run(
        [*unshare, "sh", "-c", inside, "sh", sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 2, made.stderr
    assert made.stderr.startswith("dial: error: wanted folders that all machines of the Ray")
    assert f"which does not have what is written to {tmp_path}" in made.stderr
    assert made.stderr.count("\n") == 1


@pytest.mark.slow
def test_one_run_is_not_for_ray(tmp_path: Path) -> None:
    domains = ["digits:mnist", "digits:optdigits"]
    made = command("adapt", *domains, "--out", tmp_path / "run", "--ray", "local")
    assert made.returncode == 2
    assert "wanted a search, whose trials Ray runs: --entropy auto, or --tune NAME" in made.stderr
