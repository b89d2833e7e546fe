"""Processes that torchrun started, on one machine or several: the first leads, the others follow.

The first process opens the images, looks at the run's folder, decides and writes. The others wait
for what it launches, do their part of it, and return what it returns.
"""

import os
import pickle
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from dial.errors import DialError

T = TypeVar("T")

_BACKENDS = re.compile("gloo|nccl", re.IGNORECASE)  # name themselves when a connection is lost
PATIENCE = timedelta(days=1000)
"""How long others wait for the first process, which may read and judge images for hours."""
_team: "Team | None" = None


def size() -> int | None:
    """Returns how many processes torchrun started on all machines; None outside of torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


def is_shared() -> bool:
    """Returns whether torchrun started several processes, which share every batch."""
    return (size() or 1) > 1


def leads() -> bool:
    """Returns whether this process is the first; outside of torchrun each is."""
    return not is_shared() or os.environ["RANK"] == "0"


def nodes() -> int:
    """Returns the number of torchrun's machines.

    Raises:
        DialError: machines with different numbers of processes.
    """
    machines, here = int(os.environ["GROUP_WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if machines * here != size():
        raise DialError(
            wanted="as many processes on each machine",
            got=f"{here} of {size()} on one of {machines}",
            fix="give torchrun the same --nproc-per-node on every machine",
        )
    return machines


def refuse(command: str) -> None:
    """Refuse a command that several processes cannot share."""
    if is_shared():
        raise DialError(
            wanted="dial adapt, whose batches the processes of torchrun share",
            got=f"{command} under torchrun with {size()} of them",
            fix="run this command without torchrun",
        )


def speaks_first() -> bool:
    """Returns whether no other of torchrun's processes has said yet what ended the run.

    Outside of torchrun always. What comes first is the cause; of what follows from it, such as a
    process that is gone, and of what all processes find, nothing has to be said again.
    """
    if not is_shared():
        return True
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        store = TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=5),
        )
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return store.add(f"dial/ended/{attempt}", 1) == 1
    except RuntimeError:  # torchrun itself is gone
        return True


class Team:
    """The processes of one call: the first sends, the others receive."""

    def __init__(self, fabric: Any) -> None:
        from torch.distributed import new_group

        self.fabric, self._is_whole = fabric, True
        with lost_processes():
            fabric.launch()
            self._group = new_group(backend="gloo", timeout=PATIENCE)

    def send(self, kind: str, content: Any) -> None:
        """Send a message to all others, unless one of them is known to be elsewhere or gone."""
        if self._is_whole:
            self._exchange([kind, content])

    def receive(self) -> tuple[str, Any]:
        """Returns the next message of the first process."""
        kind, content = self._exchange([None, None])
        return kind, content

    def run(self, call: Callable[[Any], None]) -> None:
        """Do this process's part of what the first one launched."""
        try:
            with lost_processes():
                call(self.fabric)
        except BaseException as error:
            self._is_whole = getattr(error, "is_of_all", False)
            raise

    def follow(self) -> Any:
        """Do what the first process launches, until it ends. Returns what it returns."""
        while True:
            match self.receive():
                case "launch", call:
                    try:
                        self.run(call)
                    except BaseException as error:
                        if not getattr(error, "is_of_all", False):
                            raise
                case "return", value:
                    return value
                case _, error:
                    raise error

    def _exchange(self, message: list[Any]) -> list[Any]:
        from torch.distributed import broadcast_object_list

        with lost_processes():
            broadcast_object_list(message, src=0, group=self._group)
        return message


def team() -> Team | None:
    """Returns the team that this process leads, inside `lead`."""
    return _team


def lead(function: Callable[[], T], create: Callable[[], Any]) -> T:
    """Call a function in the first of torchrun's processes; the others do what it launches.

    Args:
        function: what decides, launches and writes.
        create: creates the fabric, in each process.

    Returns:
        What the function returned, in all processes.

    Raises:
        DialError: what the function raised, in all processes, or a process that is gone.
    """
    global _team  # noqa: PLW0603 - one per process, like torch's default group
    if not is_shared() or _team is not None:
        return function()
    with _terminable():
        ours = Team(create())
        if not leads():
            return ours.follow()  # type: ignore[no-any-return]
        _team = ours
        try:
            value = function()
        except BaseException as error:
            with suppress(DialError):  # a process that is gone needs no message
                ours.send("raise", _portable(error))
            raise
        finally:
            _team = None
        with suppress(DialError):  # the run is written
            ours.send("return", value)
        return value


def _portable(error: BaseException) -> BaseException:
    """Returns an error that can be sent: itself, or one that names it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever an error is made of
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


@contextmanager
def lost_processes() -> Iterator[None]:
    """What torch raises when another process is gone becomes an error that says so."""
    from torch.distributed import DistError

    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, DistError) or _BACKENDS.search(str(error))):
            raise
        raise DialError(
            wanted=f"all {size()} processes that torchrun started",
            got="one that is gone, was killed or has failed",
            fix="see above and on the other machines why, then run the same torchrun line on "
            "every machine with --resume",
        ) from error


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM, which torchrun sends when a process has died, stops this one as Ctrl-C does."""
    try:
        former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not in the main thread, where signals do not arrive
        yield
        return
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # or it cuts short what there is to say
        raise
    signal.signal(signal.SIGTERM, former)
