"""The one training loop: steps, epochs, checkpoints, watchdogs, on Lightning Fabric."""

import io
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dial import files
from dial.data.batches import Batch, Batches
from dial.errors import DialError
from dial.files.records import require_type
from dial.methods import Method, Trainee
from dial.training import torchrun
from dial.training.clock import Clock
from dial.training.launch import on_first
from dial.training.settings import Settings

if TYPE_CHECKING:  # it takes more than a second to import, and what is refused does without
    from lightning_fabric import Fabric

VERSION = 1
_SOURCES_OF_FAILURE = (
    "a lower --lr, a smaller weight of the method's losses, or larger batches; "
    "the last checkpoint is kept"
)


class NotFiniteError(DialError):
    """A loss went to infinity, or is not a number."""

    is_of_all = True


class Interrupted(BaseException):
    """Somebody asked the run to stop; its checkpoint is written.

    As with KeyboardInterrupt, what catches errors does not catch it.
    """

    is_of_all = True


@dataclass
class Progress:
    """How far a run has come and what it measured: what a checkpoint holds beside tensors."""

    step: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase until the checkpoint."""
    counted: int = 0
    """Steps of the current epoch, which `sums` are over."""
    sums: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


def fit(
    trainee: Trainee,
    method: Method,
    batches: Batches,
    *,
    settings: Settings,
    fabric: "Fabric",
    checkpoint: Path,
    clock: Clock,
    resume: bool = False,
    in_step: Callable[[], AbstractContextManager[None]] = nullcontext,
    on_resume: Callable[[Progress, int], None] = lambda *_: None,
    on_epoch: Callable[[Trainee, dict[str, Any]], None] = lambda *_: None,
    on_step: Callable[[Progress, int, dict[str, float]], None] = lambda *_: None,
    on_refresh: Callable[[Trainee], None] = lambda *_: None,
) -> Progress:
    """Train to the end, from the start or from the checkpoint.

    Args:
        trainee: as `method.prepare` made it; changed in place.
        method: what a step minimizes.
        batches: of both domains.
        settings: of the optimizer and its schedule.
        fabric: launched, with the device, the precision and the processes.
        checkpoint: the file to go on from and to write at each epoch and when stopped.
        clock: measures the phases; it gets those from before if the run is resumed.
        resume: whether to go on from it, if it is there.
        in_step: entered for each step.
        on_resume: gets the progress from before, and the number of all steps.
        on_epoch: gets the trainee in eval mode and the epoch's record, to add to it.
        on_step: gets the progress, the number of all steps, and the losses.
        on_refresh: gets the trainee at the parts of the training in `method.refreshes`.

    Raises:
        DialError: a loss that is not finite, or a checkpoint of another run.
        Interrupted: after SIGTERM or SIGINT, once the checkpoint is written.
    """
    optimizer = build_optimizer(trainee, settings)
    total = settings.total_steps(len(batches))
    refreshed = {round(part * total) for part in method.refreshes}
    progress = Progress()
    model = fabric.setup_module(trainee)  # in the precision of the checkpoint
    if resume and (content := on_first(fabric, partial(_read, checkpoint))) is not None:
        progress = _load(checkpoint, content, trainee, optimizer, batches)
        clock.add(progress.spent)
        on_resume(progress, total)
    optimizer = fabric.setup_optimizers(optimizer)  # type: ignore[assignment]

    def save() -> None:
        progress.spent = clock.spent()
        with clock.phase("checkpoints"):
            on_first(fabric, lambda: _save(checkpoint, trainee, optimizer, batches, progress))

    def is_stopped() -> bool:
        """Returns whether any process was asked to stop, so that all end after the same step."""
        if fabric.world_size == 1:
            return bool(stop)
        asked = torch.tensor(float(bool(stop)), device=fabric.device)
        return bool(fabric.all_reduce(asked, reduce_op="sum"))

    with _stopping() as stop, clock.phase("steps"):
        while progress.step < total:
            trainee.train()
            for batch in batches:
                done = progress.step / total
                if progress.step in refreshed:
                    with clock.phase("pseudo-labels"):
                        on_refresh(trainee.eval())
                    trainee.train()
                _set_rates(optimizer, settings.rate(done))
                with in_step():
                    terms = _step(model, method, _to(batch, fabric.device), done, fabric, optimizer)
                progress.step += 1
                progress.counted += 1
                for name, value in terms.items():
                    progress.sums[name] = progress.sums.get(name, 0.0) + value
                on_step(progress, total, terms)
                over = progress.step == total
                if not over and is_stopped():
                    save()
                    raise Interrupted
                if over:
                    break
            record = {"epoch": len(progress.history) + 1, "step": progress.step, "lr": settings.lr}
            record["lr"] *= settings.rate((progress.step - 1) / total)
            record |= {name: value / progress.counted for name, value in progress.sums.items()}
            with clock.phase("epochs"):
                on_epoch(trainee.eval(), record)
            progress.history.append(record)
            progress.sums, progress.counted = {}, 0
            save()
        if is_stopped():  # while the last epoch was judged: what comes after training is left too
            raise Interrupted
    return progress


def build_optimizer(trainee: Trainee, settings: Settings) -> torch.optim.Optimizer:
    """Returns the optimizer of all that is trained; `base_lr` of a group is its rate at first."""
    groups = trainee.backbone.parameter_groups(
        settings.lr,
        weight_decay=settings.weight_decay,
        new_rate=settings.new_rate,
        bias_rate=settings.bias_rate,
    )
    if trainee.extra is not None:
        own = list(trainee.extra.parameters())
        if own:
            groups.append({"params": own, "lr": settings.lr * settings.new_rate})
    groups = [group | {"base_lr": group["lr"]} for group in groups]
    if settings.optimizer == "adam":
        return torch.optim.Adam(groups, lr=settings.lr)
    decay = settings.weight_decay
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, weight_decay=decay)


def _set_rates(optimizer: torch.optim.Optimizer, part: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * part


def _step(
    model: Any,
    method: Method,
    batch: Batch,
    done: float,
    fabric: "Fabric",
    optimizer: torch.optim.Optimizer,
) -> dict[str, float]:
    """One update; the value of each term."""
    optimizer.zero_grad()
    values: dict[str, Tensor] = {}
    for terms in method.terms(model, batch, done):
        for name, term in terms.items():
            values[name] = values.get(name, 0.0) + term.detach()
        loss = torch.stack([term.float() for term in terms.values()]).sum()
        fabric.backward(loss)
    numbers = torch.stack([value.float() for value in values.values()])
    if fabric.world_size > 1:
        numbers = fabric.all_reduce(numbers)  # type: ignore[assignment]
    terms_now = dict(zip(values, numbers.tolist(), strict=True))
    if not all(math.isfinite(value) for value in terms_now.values()):
        shown = ", ".join(f"{name} {value:g}" for name, value in terms_now.items())
        raise NotFiniteError(
            wanted="a finite loss",
            got=f"{shown} at {done:.1%} of the training with {type(method).__name__}",
            fix=f"try {_SOURCES_OF_FAILURE}",
        )
    optimizer.step()
    return terms_now


def _to(batch: Batch, device: torch.device) -> Batch:
    return Batch(*(None if part is None else part.to(device) for part in batch))  # type: ignore[arg-type]


@contextmanager
def _stopping() -> Iterator[list[int]]:
    """A list that gets the number of a signal to stop; a second one interrupts at once.

    Not so under torchrun: it passes each signal on to processes that a terminal has sent it to.
    """
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        if received and not torchrun.is_shared():
            signal.default_int_handler(number, frame)
        received.append(number)

    try:
        former = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, where signals do not arrive
        former = {}
    try:
        yield received
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _save(
    path: Path,
    trainee: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    progress: Progress,
) -> None:
    content = {
        "version": VERSION,
        "trainee": trainee.state_dict(),
        "optimizer": optimizer.state_dict(),
        "batches": batches.state_dict(),
        "progress": vars(progress),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    buffer = io.BytesIO()  # torch's own writer would hide that a disk is full
    torch.save(content, buffer)
    files.write(path, lambda out: out.write(buffer.getbuffer()))


def _read(path: Path) -> bytes | None:
    """Returns the bytes of a checkpoint; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from error


def _load(
    path: Path,
    stored: bytes,
    trainee: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
) -> Progress:
    try:
        content = torch.load(io.BytesIO(stored), map_location="cpu", weights_only=True)
        if content["version"] != VERSION:
            raise KeyError(f"version {content['version']}")
        known = {f.name for f in fields(Progress)}  # an older version stored more
        stored_progress = {name: v for name, v in content["progress"].items() if name in known}
        require_type(stored_progress, Progress, name="the progress")
        progress = Progress(**stored_progress)
        if min(progress.step, progress.counted) < 0:
            raise ValueError("a step before the first")
        trainee.load_state_dict(content["trainee"])
        optimizer.load_state_dict(content["optimizer"])
        batches.load_state_dict(content["batches"])
        torch.set_rng_state(content["random"])
        if content["random_cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(content["random_cuda"])
    except DialError:
        raise
    except Exception as error:
        raise _unusable(path, error) from error
    return progress


def _unusable(path: Path, error: Exception) -> DialError:
    return DialError(
        wanted=f"a checkpoint of this run in {path}",
        got=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        fix="resume with the settings the run began with, or start anew in another folder",
    )
