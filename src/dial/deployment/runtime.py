"""What computes the logits of images: the network itself, or ONNX Runtime where many pay for it."""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dial import files
from dial.data.decode import cores
from dial.deployment import model as models
from dial.deployment.model import Model
from dial.errors import DialError

NAME = "predict.onnx"
"""The exported network, which a run keeps for the next time."""
PAYS = 100_000_000
"""Pixels that make an export worth its seven seconds: those of 4,000 images of 160 x 160."""
_AT_ONCE = 100_000
"""Pixels of the images that one call computes: what lies between layers then stays in a core's
cache, which makes EfficientNet-Lite0 1.4 times as fast as with 64 images."""
TOLERANCE = 1e-4
"""The largest difference of logits at which an exported network counts as the same."""
_PACKAGES = "onnx", "onnxruntime", "onnxscript"
_INPUT = "images"

Batch = tuple[list[str], Tensor]


@dataclass(frozen=True)
class Runtime:
    """Computes logits `(n, K)` on the CPU from images `(n, C, size, size)`."""

    logits: Callable[[Tensor], Tensor]
    workers: int = 0
    """Batches at a time, while the next ones are decoded; 0 is one after the other."""

    def run(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yields names and logits, in the order of the batches of names and images."""
        if not self.workers:
            for names, images in batches:
                yield names, self.logits(images)
            return
        pending: deque[tuple[list[str], Future[Tensor]]] = deque()
        with ThreadPoolExecutor(self.workers) as pool:
            for names, images in _with_one_thread(batches):
                pending.append((names, pool.submit(self.logits, images)))
                if len(pending) > self.workers:
                    done, logits = pending.popleft()
                    yield done, logits.result()
            for done, logits in pending:
                yield done, logits.result()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside the `with`, torch uses one thread.

    More of them spin while they wait for work, which takes time from a network that runs beside.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _with_one_thread(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields the batches, each made with one thread of torch's."""
    source = iter(batches)
    while True:
        with one_thread():
            batch = next(source, None)
        if batch is None:
            return
        yield batch


def torch_runtime(model: Model, device: torch.device) -> Runtime:
    """Returns the network itself, on a device."""
    network = model.network.eval().to(device)
    return Runtime(lambda images: models.predict(network, [images]))


def onnx_runtime(content: bytes, *, workers: int) -> Runtime:
    """Returns ONNX Runtime with an exported network, a thread for each batch.

    One thread a batch needs less time in all than several that share a batch and wait for each
    other.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
    )

    def logits(images: Tensor) -> Tensor:
        few = max(1, _AT_ONCE // images[0, 0].numel())
        parts = [session.run(None, {_INPUT: part.numpy()})[0] for part in images.split(few)]
        return torch.from_numpy(np.concatenate(parts))

    return Runtime(logits, workers)


def export_for_many(
    model: Model, *, images: int, folder: Path | None, say: Callable[[str], None]
) -> bytes | None:
    """Returns the network for ONNX Runtime, if so many images on a CPU pay for the export.

    None where they do not, where ONNX Runtime is not installed, and for a network that cannot be
    exported. The export stays in `folder`, if that can be written, and is used again as long as
    it belongs to the model and gives the model's logits.
    """
    if images * model.preprocessing.size**2 < PAYS or not all(map(find_spec, _PACKAGES)):
        return None
    path = None if folder is None else folder / NAME
    if path is not None and path.is_file():
        kept = path.read_bytes()
        if _agrees(kept, model):
            return kept
    say("exporting the network for ONNX Runtime, which is faster for so many images")
    content = _export(model)
    if content is None or not _agrees(content, model):
        return None
    if path is not None:
        try:
            files.write_bytes(path, content)
        except DialError:
            say(f"{path} cannot be written: the next time needs another export")
    return content


def _export(model: Model) -> bytes | None:
    from dial.deployment.export import FORMATS  # which predicts, to compare

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's exporter about itself
        try:
            return FORMATS[".onnx"].write(model.network.cpu().eval(), _noise(model), {})
        except Exception:  # noqa: BLE001 - whatever the exporter cannot do, torch can
            return None


def _agrees(content: bytes, model: Model) -> bool:
    """Whether an exported network gives the logits of the model on some noise."""
    noise = _noise(model)
    try:
        found = onnx_runtime(content, workers=0).logits(noise)
    except Exception:  # noqa: BLE001 - a damaged file, or one of another network
        return False
    expected = models.predict(model.network.cpu(), [noise])
    if found.shape != expected.shape:
        return False
    return bool((found - expected).abs().max() <= TOLERANCE * expected.abs().max().clamp(min=1))


def _noise(model: Model) -> Tensor:
    preprocessing = model.preprocessing
    shape = 8, preprocessing.channels, preprocessing.size, preprocessing.size
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def runtime_for(
    model: Model, device: torch.device, content: bytes | None, *, workers: int | None = None
) -> Runtime:
    """Returns ONNX Runtime with an exported network, or without one the network itself."""
    if content is None:
        return torch_runtime(model, device)
    return onnx_runtime(content, workers=workers or cores())
