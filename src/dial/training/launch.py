"""Where a run computes: the device, the precision, and how many processes share every batch."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dial.errors import DialError
from dial.training import memory as allocation


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where and how a run computes; nothing of this changes what it computes."""

    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    data: str | None = None
    cache_dir: str | None = None
    use_cache: bool = True
    skip_bad: bool = False
    quiet: bool = False
    workers: int = 1
    report: bool = True
    """Whether the run gathers evidence at its end and writes its page."""

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise DialError(
                wanted="workers, threads that make batches, of 0 or more",
                got=str(self.workers),
                fix="use --workers 1",
            )


def launch(function: Callable[..., None], *args: Any, machine: Machine, **kwargs: Any) -> None:
    """Call `function(fabric, ...)` in as many processes as there are devices."""
    from lightning_fabric import Fabric
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    several = machine.devices > 1 or torchrun
    kind = ("ddp" if torchrun else "ddp_spawn") if several else "auto"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*GPU available.*|.*srun.*")
            fabric = Fabric(
                accelerator="auto" if machine.device == "auto" else machine.device,
                devices=machine.devices,
                strategy=kind,
                precision=machine.precision,  # type: ignore[arg-type]
            )
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        raise DialError(
            wanted=f"a device '{machine.device}' with precision '{machine.precision}'",
            got=str(error).splitlines()[0],
            fix="use --device cpu, cuda, mps or auto, and --precision 32-true or bf16-mixed",
        ) from error
    # As one callable: the launcher would try to look into arguments, and into frozen dataclasses.
    fabric.launch(partial(_call, function=function, args=args, kwargs=kwargs))


def _call(
    fabric: Any, *, function: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with allocation.kept():
        function(fabric, *args, **kwargs)


def find_device(name: str) -> torch.device:
    """The device for one network, by the name that `--device` takes.

    Raises:
        DialError: this machine does not have it.
    """
    if name == "auto":
        found = torch.accelerator.current_accelerator(check_available=True)
        return found or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise DialError(
            wanted=f"a device '{name}'",
            got=str(error).splitlines()[0],
            fix="use --device cpu, cuda, mps or auto",
        ) from error
    return device
