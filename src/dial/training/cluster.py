"""A Ray cluster for what is many and independent: Ray places the work, and retries it."""

import logging
import os
import pickle
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import dial
from dial import files
from dial.allocator import keep_memory
from dial.errors import DialError, missing_extra
from dial.torchvision_guard import prepare_torchvision

T = TypeVar("T")

RETRIES = 3
"""How often Ray repeats what a worker did not end, because it died."""
_SECONDS = 5.0  # for a connection to the head; Ray itself tries for minutes
_PATIENCE = 120.0  # seconds for a machine to start a worker and look at a path
_POLL = 0.1  # seconds between looks at the tasks
_KINDS = ("CPU", "GPU")  # of Ray's resources, in the order of `Needs`


class Needs(NamedTuple):
    """What one run takes of a machine; the names are those of Ray's options."""

    num_cpus: int
    num_gpus: int


class Cluster:
    """The Ray cluster that this process is connected to, and what one run needs there."""

    def __init__(self, ray: Any, *, device: str, devices: int) -> None:
        self.ray = ray
        self.needs = _needs([node["Resources"] for node in self.machines()], device, devices)

    def machines(self) -> list[dict[str, Any]]:
        """Returns what Ray knows about the machines that can do work."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        return [node for node in nodes if node["Resources"].get("CPU")]

    @property
    def at_once(self) -> int:
        """How many runs the machines can do at the same time."""
        asked = {kind: n for kind, n in zip(_KINDS, self.needs, strict=True) if n}
        shares = [
            min(node["Resources"].get(kind, 0) // n for kind, n in asked.items())
            for node in self.machines()
        ]
        return max(1, int(sum(shares)))

    def require(self, paths: Sequence[Path]) -> None:
        """Check that all machines have this version of dial and see these files and folders.

        Raises:
            DialError: a machine that does not.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        absolute = [os.path.abspath(path) for path in paths]
        for machine in self.machines():
            host = machine["NodeManagerHostname"]
            where = NodeAffinitySchedulingStrategy(machine["NodeID"], soft=False)
            task = self.ray.remote(num_cpus=0, scheduling_strategy=where)(_look)
            try:
                version, absent = self.ray.get(task.remote(absolute), timeout=_PATIENCE)
            except self.ray.exceptions.RayError as error:
                raise DialError(
                    wanted=f"dial {dial.__version__} on every machine of the Ray cluster",
                    got=f"{host}, where it does not start ({_last_line(error)})",
                    fix='pip install "dial-da[ray]" there, of the same version',
                ) from error
            if version != dial.__version__:
                raise DialError(
                    wanted=f"dial {dial.__version__} on every machine of the Ray cluster",
                    got=f"dial {version} on {host}",
                    fix="install the same version on all machines",
                )
            if absent:
                raise DialError(
                    wanted="folders that all machines of the Ray cluster share",
                    got=f"{host}, which does not have {absent[0]}",
                    fix="use a shared file system, mounted under the same path on every machine",
                )

    def require_shared(self, folder: Path, *more: Path) -> None:
        """Check that a folder to write to is the same one on all machines, and that `more` exist.

        Raises:
            DialError: a machine that does not see what is written here.
        """
        token = folder / f".shared-{uuid.uuid4().hex}"
        files.write_bytes(token, b"")
        try:
            self.require([token, *more])
        except DialError as error:
            if token.name not in error.got:
                raise
            got = error.got.replace(str(os.path.abspath(token)), f"what is written to {folder}")
            raise DialError(wanted=error.wanted, got=got, fix=error.fix) from None
        finally:
            token.unlink(missing_ok=True)

    def run(
        self,
        function: Callable[[T], Any],
        items: Sequence[T],
        each: Callable[[T, Any], None],
    ) -> None:
        """Call a function with each item, as tasks of the cluster.

        `each` gets the item and what the function returned, or the exception that it raised, in
        the order in which they end. A task whose worker dies is repeated.
        """
        ray = self.ray
        task = ray.remote(**self.needs._asdict(), max_retries=RETRIES)(_work)
        shared = ray.put(ray.cloudpickle.dumps(function))
        here = os.getcwd()
        pickled = [(ray.cloudpickle.dumps(item), item) for item in items]
        threads = self.needs.num_cpus
        waiting = {task.remote(shared, one, here, threads): item for one, item in pickled}
        try:
            while waiting:
                # Ray's own waiting puts off what the handler of a signal raises until it is over.
                time.sleep(_POLL)
                ready, _ = ray.wait([*waiting], num_returns=1, timeout=0)
                if not ready:
                    continue
                item = waiting.pop(ready[0])
                try:
                    result = pickle.loads(ray.get(ready[0]))  # noqa: S301 - of our own worker
                except ray.exceptions.RayError as error:
                    result = lost(error)
                each(item, result)
        finally:
            for task in waiting:
                ray.cancel(task, force=True)


@contextmanager
def connected(
    address: str | None, *, device: str = "auto", devices: int = 1
) -> Iterator[Cluster | None]:
    """Be connected to a Ray cluster inside the `with`; None for no address.

    Args:
        address: `auto` for one that runs, `local` for one of this machine alone that ends with the
            `with`, or `HOST:PORT`. If this process has called `ray.init`, it is that cluster.
        device: of each run.
        devices: processes of each run.

    Raises:
        DialError: Ray is not installed, there is no such cluster, or none of its machines can do a
            run.
    """
    if address is None:
        yield None
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # of what it says of workers that die
    if address == "local":
        os.environ.setdefault("RAY_worker_niceness", "0")  # or all other programs come first
    else:
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")  # of 40 s each, and not 20
    try:
        import ray
    except ModuleNotFoundError as error:
        raise missing_extra(error, "ray") from error
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address)
    try:
        yield Cluster(ray, device=device, devices=devices)
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    _require_head(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    options |= {"include_dashboard": False} if address == "local" else {}
    former = signal.getsignal(signal.SIGTERM)
    try:
        with _caught_lines() as lines:
            ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        if any("InvalidAuthToken" in line for line in lines):
            raise DialError(
                wanted=f"the token of the Ray cluster at {address}",
                got="none, or another one",
                fix="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, to those "
                "of the cluster",
            ) from error
        raise _no_cluster(address, _last_line(error)) from error
    finally:
        with suppress(ValueError):  # not in the main thread, where Ray leaves signals alone
            signal.signal(signal.SIGTERM, former)


@contextmanager
def _caught_lines() -> Iterator[list[str]]:
    """A list that gets the lines which Ray's C++ writes to standard error inside the `with`."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as caught:
        kept = os.dup(2)
        os.dup2(caught.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            lines += caught.read().decode("utf-8", "replace").splitlines()


def _require_head(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would try for minutes."""
    if address in ("auto", "local"):
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not (host and colon and port.isdecimal()):
        raise _no_cluster(address, "no address of that form")
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, getattr(error, "strerror", None) or str(error)) from error


def _no_cluster(address: str, reason: str) -> DialError:
    if address == "auto":
        return DialError(
            wanted="a Ray cluster that runs, of which this machine is a part",
            got=reason,
            fix="start one with `ray start --head`, or use --ray local or --ray HOST:PORT",
        )
    return DialError(
        wanted="a Ray cluster: auto for one that runs, local for this machine, or HOST:PORT",
        got=f"'{address}' ({reason})",
        fix="give the address that `ray start --head` printed, on a machine of that cluster",
    )


def lost(error: Exception) -> DialError:
    """Returns the error about work that Ray has given up."""
    return DialError(
        wanted="a worker of the Ray cluster that ends what it began",
        got=f"{type(error).__name__} ({_last_line(error)})",
        fix="run the same command again, which resumes; if its memory ran out, have fewer runs "
        "at once on a machine",
    )


def _look(paths: list[str]) -> tuple[str, list[str]]:
    """Returns the version of dial on a machine, and which of the paths it does not see."""
    return dial.__version__, [path for path in paths if not os.path.exists(path)]


def _work(function: bytes, item: bytes, folder: str, threads: int) -> bytes:
    """Do a task in a worker. Returns what the function returned, or the exception that it raised.

    A worker that is asked to stop has written its checkpoint, and dies: Ray repeats the task.
    """
    prepare(folder, threads)
    try:
        with keep_memory():
            return pickled(pickle.loads(function)(pickle.loads(item)))  # noqa: S301 - our own
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return pickled(error)
    except BaseException:  # noqa: BLE001 - `Interrupted`
        os._exit(1)


def prepare(folder: str, threads: int) -> None:
    """Make a worker like the process that it works for: its folder, its threads."""
    import torch

    prepare_torchvision()  # networks that were built by timm are unpickled here
    with suppress(OSError):  # a folder of that machine alone; paths are absolute then
        os.chdir(folder)
    torch.set_num_threads(threads)


def pickled(value: Any) -> bytes:
    """Returns a value's bytes; of an exception that cannot be sent, those of one that names it."""
    from ray import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(value)
        pickle.loads(content)  # noqa: S301 - our own
    except Exception as error:  # noqa: BLE001 - whatever a value is made of
        value = value if isinstance(value, Exception) else error
        content = cloudpickle.dumps(RuntimeError(f"{type(value).__name__}: {value}"))
    return content


def _needs(machines: list[dict[str, float]], device: str, devices: int) -> Needs:
    """Returns what a run takes: a GPU for each process, or as many CPUs as torch has threads.

    Results depend on the number of threads, in the last digits, so it is the one of this process;
    or that of the largest machine, if it has fewer.

    Raises:
        DialError: no machine has that much; Ray would wait for one forever.
    """
    import torch

    most = Needs(*(int(max((m.get(kind, 0) for m in machines), default=0)) for kind in _KINDS))
    name = device.partition(":")[0]
    if name in ("cuda", "gpu") or (name == "auto" and most.num_gpus >= devices):
        needs = Needs(devices, devices)
    else:
        threads = min(torch.get_num_threads(), most.num_cpus // devices)
        needs = Needs(max(1, threads) * devices, 0)
    if not any(_fits(needs, machine) for machine in machines):
        raise DialError(
            wanted=f"a machine of the Ray cluster with {_count(needs)}",
            got=f"{len(machines)} machines, with at most {_count(most)}",
            fix="use another --device, or start Ray on such a machine",
        )
    return needs


def _fits(needs: Needs, machine: dict[str, float]) -> bool:
    return all(machine.get(kind, 0) >= n for kind, n in zip(_KINDS, needs, strict=True))


def _count(needs: Needs) -> str:
    return f"{needs.num_cpus} CPUs" + (f" and {needs.num_gpus} GPUs" if needs.num_gpus else "")


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
