"""Real processes of a real torchrun: the same weights, one that writes, killed ones, refusals."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import dial
from dial import DialError
from dial.cli import app
from dial.training import torchrun

from ..conftest import SETTINGS

# The command, which notes what each process writes and kills itself where it is told to.
SCRIPT = """
import os, signal, sys
from pathlib import Path
from dial import files
from dial.cli import main
from dial.training import engine

rank, steps = os.environ["RANK"], 0
write, step = files.write, engine._step

def noted(path, content):
    with open(os.environ["WRITTEN"], "a") as log:
        log.write(f"{rank} {path.name}\\n")
    write(path, content)

def mortal(*args):
    global steps
    steps += 1
    if os.environ.get("KILL") == f"{rank} {steps}":
        os.kill(os.getpid(), signal.SIGKILL)
    return step(*args)

files.write, engine._step = noted, mortal
main()
"""


def options(settings: dict[str, Any]) -> list[str]:
    skipped = ("quiet", "report")
    given = [f"--{k.replace('_', '-')}={v}" for k, v in settings.items() if k not in skipped]
    return [*given, "--no-report", "--device=cpu"]


class Machine:
    """Starts `torchrun` with the command in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.script = folder.with_name("command.py")
        self.script.write_text(SCRIPT)
        self.written = folder.with_name("written.txt")
        self.seconds = 0.0  # that the first run took: how busy this machine is

    @contextmanager
    def start(self, *words: str, torchrun: tuple[str, ...], **env: str) -> Iterator[Any]:
        command = [sys.executable, "-m", "torch.distributed.run", *torchrun, str(self.script)]
        process = subprocess.Popen(
            [*command, *words],
            cwd=self.folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "WRITTEN": str(self.written)} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        started = time.monotonic()
        with self.start(*words, torchrun=("--nproc-per-node=2",), **env) as process:
            out, err = process.communicate()
            self.seconds = self.seconds or time.monotonic() - started
            return subprocess.CompletedProcess(words, process.returncode, out, err)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machines") / "one")


GIVEN = SETTINGS | {"epochs": 4, "precision": "64-true"}  # what differs is not rounding


@pytest.fixture(scope="module")
def words(folders: tuple[Path, Path]) -> list[str]:
    return ["adapt", *map(str, folders), *options(GIVEN), "--cache-dir=cache"]


@pytest.fixture(scope="module")
def whole(machine: Machine, words: list[str]) -> subprocess.CompletedProcess[str]:
    """A run of two processes that nothing disturbs, in the folder `whole`."""
    return machine.run(*words, "--out=whole", "--json")


def test_two_processes_train_as_one_does_and_the_first_writes(
    folders: tuple[Path, Path],
    tmp_path: Path,
    machine: Machine,
    words: list[str],
    whole: subprocess.CompletedProcess[str],
) -> None:
    assert whole.returncode == 0, whole.stderr
    assert json.loads(whole.stdout)["steps"] == 16  # printed once
    alone = dial.adapt(*folders, **GIVEN, device="cpu", out=tmp_path / "run", use_cache=False)
    result = machine.folder / "whole"
    weights = load_file(result / "model.safetensors")
    for name, tensor in load_file(alone.folder / "model.safetensors").items():
        torch.testing.assert_close(weights[name], tensor, atol=1e-6, rtol=1e-6)
    assert {path.name for path in result.iterdir()} == {p.name for p in alone.folder.iterdir()}
    assert json.loads((result / "config.json").read_text())["execution"]["devices"] == 2
    lines = machine.written.read_text().splitlines()
    assert {line.split()[0] for line in lines} == {"0"}
    assert {"0 config.json", "0 last.ckpt", "0 result.json"} <= {*lines}

    refused = machine.run(*words, "--out=whole")
    assert refused.returncode != 0
    assert refused.stderr.count("dial: error: wanted a new folder for the run") == 1
    assert refused.stderr.count("dial: ") == 1


@pytest.mark.slow
def test_killed_on_one_machine_and_resumed_on_two_it_ends_as_an_undisturbed_run_does(
    machine: Machine, words: list[str], whole: subprocess.CompletedProcess[str]
) -> None:
    words = [*words, "--out=run", "--resume"]
    run = machine.folder / "run"
    for kill in ("1 6", "0 6"):  # the process and its step; the second goes on from epoch 1
        started = time.monotonic()
        killed = machine.run(*words, KILL=kill)
        assert killed.returncode != 0
        assert (
            time.monotonic() - started < 60 + 3 * machine.seconds
        )  # it does not wait for the dead
        assert killed.stderr.count("dial: error: ") == 1, killed.stderr
        assert "wanted all 2 processes that torchrun started, got one that is gone" in killed.stderr
        assert "dial: stopped" not in killed.stderr
        assert not (run / "result.json").exists()
    assert torch.load(run / "last.ckpt", weights_only=True)["progress"]["step"] == 8

    other = Machine(machine.folder.with_name("two"))  # has the images; neither run nor cache
    nodes = "--nnodes=2", f"--rdzv-endpoint=localhost:{free_port()}", "--nproc-per-node=1"
    with (
        machine.start(*words, torchrun=(*nodes, "--node-rank=0")) as first,
        other.start(*words, torchrun=(*nodes, "--node-rank=1")) as second,
    ):
        told = [process.communicate()[1] for process in (first, second)]
        assert (first.returncode, second.returncode) == (0, 0), told
    assert [path.name for path in other.folder.iterdir()] == ["cache"]
    again, weights = (
        load_file(folder / "model.safetensors") for folder in (run, machine.folder / "whole")
    )
    assert all(torch.equal(again[name], weights[name]) for name in weights)
    histories = [(machine.folder / n / "metrics.jsonl").read_text() for n in ("whole", "run")]
    assert histories[0] == histories[1]


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the second of two processes."""
    values: dict[str, object] = {
        "WORLD_SIZE": 2,
        "RANK": 1,
        "LOCAL_WORLD_SIZE": 2,
        "GROUP_WORLD_SIZE": 1,
    }
    values |= {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "localhost"}
    values |= {"MASTER_PORT": free_port()}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.usefixtures("two_processes")
def test_devices_that_torchrun_did_not_start_are_refused(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    for devices in (1, 3):
        message = rf"the 2 processes that torchrun started, got --devices {devices}; fix: leave"
        with pytest.raises(DialError, match=message):
            dial.adapt(*folders, **SETTINGS, out=tmp_path / "run", devices=devices)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("two_processes")
def test_machines_with_different_numbers_of_processes_are_refused(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUP_WORLD_SIZE", "3")
    with pytest.raises(DialError, match="got 2 of 2 on one of 3; fix: give torchrun the same"):
        dial.adapt(*folders, **SETTINGS, out=tmp_path / "run")


@pytest.mark.usefixtures("two_processes")
def test_other_commands_are_refused() -> None:
    for words in (["bench", "digits", "--out", "x"], ["list", "methods"], ["predict", "x", "y"]):
        refused = CliRunner().invoke(app, words).exception
        assert isinstance(refused, DialError)
        assert f"got dial {words[0]} under torchrun with 2 of them; fix: run" in str(refused)


def test_without_torchrun_every_process_leads_and_speaks() -> None:
    assert torchrun.size() is None
    assert torchrun.leads()
    assert torchrun.speaks_first()
    assert torchrun.lead(lambda: 7, lambda: pytest.fail("needs no fabric")) == 7
