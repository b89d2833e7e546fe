"""The command in processes that are forked from one that has imported everything already.

They are as real as any, to share a folder with, to stop and to kill; but an import of torch and of
the rest takes seconds, which a test that starts many would spend again and again.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

_SERVER = get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        *("dial.pipeline", "dial.benchmarking", "dial.cli", "timm", "lightning_fabric"),
        *("scipy.stats", "sklearn.cluster", "sklearn.linear_model", "sklearn.datasets"),
    ]
)
_TICKS = os.sysconf("SC_CLK_TCK")
_STREAMS = ("stdout", "stderr")
_PEAK = "peak"


class Command:
    """`dial` with these words, used like a `subprocess.Popen`.

    `changes` are names in modules with the values that they have in that process.
    """

    def __init__(self, *words: object, changes: Mapping[str, object] | None = None) -> None:
        self._folder, self._written = TemporaryDirectory(), list[str]()
        self.peak: int | None = None
        """The most memory above what imports took, in MB, once it has ended; None if killed."""
        arguments = (self._folder.name, [*map(str, words)], dict(changes or {}))
        self._process = _SERVER.Process(target=_run, args=arguments)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> None:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("dial", timeout or 0)
        if not self._written:
            files = [Path(self._folder.name, name) for name in _STREAMS]
            self._written = [file.read_text("utf-8") if file.exists() else "" for file in files]
            measured = Path(self._folder.name, _PEAK)
            self.peak = int(measured.read_text()) if measured.exists() else None
            self._folder.cleanup()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Returns what it wrote to its two streams."""
        self.wait(timeout)
        out, err = self._written
        return out, err

    @property
    def seconds(self) -> float:
        """What it has computed, which is the same on a busy machine; 0 when it has ended."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return 0.0
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / _TICKS

    def send_signal(self, number: int) -> None:
        if self.returncode is None and self._process.pid is not None:
            os.kill(self._process.pid, number)


def run(*words: object) -> "subprocess.CompletedProcess[str]":
    """Returns how `dial` with these words ended, and what it wrote."""
    command = Command(*words)
    out, err = command.communicate()
    assert command.returncode is not None
    return subprocess.CompletedProcess(["dial", *map(str, words)], command.returncode, out, err)


def _run(folder: str, words: list[str], changes: dict[str, object]) -> None:
    import torch

    from dial.cli import main

    for descriptor, name in enumerate(_STREAMS, start=1):
        os.dup2(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    torch.set_num_threads(1)
    for name, value in changes.items():
        module, _, attribute = name.rpartition(".")
        setattr(import_module(module), attribute, value)
    sys.argv = ["dial", *words]
    before = _memory("VmRSS")
    try:
        main()
    finally:
        Path(folder, _PEAK).write_text(str(_memory("VmHWM") - before))


def _memory(name: str) -> int:
    """Returns what this process takes, or took at most, in MB."""
    # Not getrusage: there, a process that was just started has the peak of the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(f"{name}:"))
