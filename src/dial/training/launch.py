"""Where a run computes: the device, the precision, and how many processes share every batch."""

import multiprocessing
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from dial.allocator import keep_memory
from dial.data.cache_entries import parse_size
from dial.errors import DialError
from dial.training import torchrun

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run is carried out, apart from its method and its training."""

    device: str = "auto"
    """Device: auto, cpu, cuda or mps."""
    devices: int = 1
    """Processes that share every batch; under torchrun all that it started."""
    ray: str | None = None
    """Ray cluster for the trials of a search: auto for one that runs, local for this machine, or
    HOST:PORT."""
    precision: str = "32-true"
    """Precision: 32-true, bf16-mixed or 16-mixed."""
    compile: bool = False
    """Compile the network for training steps: minutes at first; it paid on no CPU yet."""
    workers: int = 1
    """Threads that prepare batches."""
    cache_dir: str | None = None
    """Folder for decoded images; by default one in the user's cache."""
    cache_limit: str | None = None
    """Size that the cache may have, like 10GB; entries that were used least lately leave it."""
    use_cache: bool = True
    """Keep decoded images on disk, or decode them each time they are used."""
    skip_bad: bool = False
    """Leave out files that cannot be read, instead of stopping."""
    report: bool = True
    """Write report.html at the end."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise DialError(
                wanted="workers, threads that prepare batches, of 0 or more",
                got=str(self.workers),
                fix="use --workers 1",
            )
        if self.cache_limit is not None:
            parse_size(self.cache_limit)  # now, not after the images were opened


def lead(function: Callable[[], T], execution: Execution) -> T:
    """Call `function` in one process: under torchrun in the first, and the others follow it.

    Returns what it returned, in all processes.

    Raises:
        DialError: `devices` that are not torchrun's processes.
    """
    started = torchrun.size()
    if started not in (None, execution.devices):
        raise DialError(
            wanted=f"the {started} processes that torchrun started",
            got=f"--devices {execution.devices}",
            fix="leave --devices out: torchrun's --nnodes and --nproc-per-node decide",
        )
    return torchrun.lead(function, partial(_create_fabric, execution))


def launch(function: Callable[..., None], *args: Any, execution: Execution, **kwargs: Any) -> None:
    """Call `function(fabric, ...)` in as many processes as there are devices."""
    # As one callable: the launcher would try to look into arguments, and into frozen dataclasses.
    call = partial(_call, function=function, args=args, kwargs=kwargs)
    team = torchrun.team()
    if team is None:
        _create_fabric(execution).launch(call)
    else:
        team.send("launch", call)
        team.run(call)


def _create_fabric(execution: Execution) -> Any:
    from lightning_fabric import Fabric
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    machines = torchrun.nodes() if torchrun.is_shared() else 1
    several = "ddp" if torchrun.is_shared() else "ddp_spawn"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*GPU available.*|.*srun.*")
            return Fabric(
                accelerator=execution.device,
                devices=execution.devices // machines,
                num_nodes=machines,
                strategy=several if execution.devices > 1 else "auto",
                precision=execution.precision,  # type: ignore[arg-type]
            )
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        raise DialError(
            wanted=f"a device '{execution.device}' with precision '{execution.precision}'",
            got=str(error).splitlines()[0],
            fix="use --device cpu, cuda, mps or auto, and --precision 32-true or bf16-mixed",
        ) from error


def on_first(fabric: Any, function: Callable[[], T]) -> T:
    """Call a function in the first process alone.

    Returns what it returned, in all processes.

    Raises:
        DialError: what it raised, in all processes.
    """
    outcome: Any = None
    if fabric.is_global_zero:
        try:
            outcome = function()
        except DialError as error:
            outcome = error
    outcome = fabric.broadcast(outcome)
    if isinstance(outcome, DialError):
        raise _of_all(outcome)
    return outcome  # type: ignore[no-any-return]


def in_turn(fabric: Any, function: Callable[[], T]) -> T:
    """Call a function in the first process, then in the first of each machine, then in all others.

    Returns what it returned.

    Raises:
        DialError: what it raised in any process, in all of them.
    """
    if fabric.world_size == 1:
        return function()
    from torch.distributed import all_gather_object, new_group

    mine = 0 if fabric.is_global_zero else 1 if fabric.local_rank == 0 else 2
    group = new_group(backend="gloo", timeout=torchrun.PATIENCE)
    value: Any = None
    for turn in range(3):
        error: DialError | None = None
        if turn == mine:
            try:
                value = function()
            except DialError as raised:
                error = raised
        errors: list[DialError | None] = [None] * fabric.world_size
        all_gather_object(errors, error, group=group)
        found = [each for each in errors if each is not None]
        if found:
            raise _of_all(found[0])
    return value  # type: ignore[no-any-return]


def require_same(fabric: Any, what: str, value: object) -> None:
    """Refuse to go on, in all processes, where some of them have another value."""
    if fabric.world_size == 1:
        return
    from torch.distributed import all_gather_object

    values: list[object] = [None] * fabric.world_size
    all_gather_object(values, value)
    others = [str(rank) for rank, each in enumerate(values) if each != values[0]]
    if others:
        raise _of_all(
            DialError(
                wanted=f"the same {what} in all {fabric.world_size} processes",
                got=f"others in process {', '.join(others)} than in process 0",
                fix="have every machine read the same files: a shared folder, or whole copies "
                "under the same path",
            )
        )


def _of_all(error: DialError) -> DialError:
    error.is_of_all = True
    return error


def _call(
    fabric: Any, *, function: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    ours = multiprocessing.parent_process() is not None  # a process that only runs `function`
    with keep_memory() if ours else nullcontext():
        function(fabric, *args, **kwargs)
