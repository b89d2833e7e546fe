"""Where a run computes: the device, the precision, and how many processes share every batch."""

import ctypes
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from dial.errors import DialError

# Of glibc's malloc.h: what mallopt takes. Its own values grow with what a program frees, up to
# those of _GROWN; once mallopt is called they do not grow any more, so these are left behind.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
_KEEPING = {_TRIM_THRESHOLD: -1, _TOP_PAD: 256 * 1024**2, _MMAP_MAX: 0}
_GROWN = {_TRIM_THRESHOLD: 64 * 1024**2, _TOP_PAD: 128 * 1024}
_GROWN |= {_MMAP_THRESHOLD: 32 * 1024**2, _MMAP_MAX: 65536}


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run is carried out, apart from its method and its training."""

    device: str = "auto"
    """Device: auto, cpu, cuda or mps."""
    devices: int = 1
    """Processes that share every batch."""
    precision: str = "32-true"
    """Precision: 32-true, bf16-mixed or 16-mixed."""
    workers: int = 1
    """Threads that prepare batches."""
    cache_dir: str | None = None
    """Folder for decoded images; by default one in the user's cache."""
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


def launch(function: Callable[..., None], *args: Any, execution: Execution, **kwargs: Any) -> None:
    """Call `function(fabric, ...)` in as many processes as there are devices."""
    from lightning_fabric import Fabric
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    several = execution.devices > 1 or torchrun
    strategy = ("ddp" if torchrun else "ddp_spawn") if several else "auto"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*GPU available.*|.*srun.*")
            fabric = Fabric(
                accelerator=execution.device,
                devices=execution.devices,
                strategy=strategy,
                precision=execution.precision,  # type: ignore[arg-type]
            )
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        raise DialError(
            wanted=f"a device '{execution.device}' with precision '{execution.precision}'",
            got=str(error).splitlines()[0],
            fix="use --device cpu, cuda, mps or auto, and --precision 32-true or bf16-mixed",
        ) from error
    # As one callable: the launcher would try to look into arguments, and into frozen dataclasses.
    fabric.launch(partial(_call, function=function, args=args, kwargs=kwargs))


def _call(
    fabric: Any, *, function: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    ours = multiprocessing.parent_process() is not None  # a process that only runs `function`
    with keep_memory() if ours else nullcontext():
        function(fabric, *args, **kwargs)


@contextmanager
def keep_memory() -> Iterator[None]:
    """Inside the `with`, freed memory is not given back to the system; afterwards all of it is.

    A training step frees tensors of many megabytes that the next one asks for again, and on a CPU
    a fifth of its time goes into pages that the system hands out anew. Does nothing where the C
    library is not glibc, or where the environment tells it what to do.
    """
    library = _library()
    if library is None:
        yield
        return
    _set(library, _KEEPING)
    try:
        yield
    finally:
        _set(library, _GROWN)
        library.malloc_trim(0)


def _library() -> Any:
    """The C library, if it is glibc and the environment does not set its options."""
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    is_set = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    glibc = hasattr(library, "mallopt") and hasattr(library, "malloc_trim")
    return library if glibc and not is_set else None


def _set(library: Any, options: dict[int, int]) -> None:
    for option, value in options.items():
        library.mallopt(option, value)
