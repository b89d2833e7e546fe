"""Images a second of a prediction from files, against the bare exported network fed from memory.

Run with Office-31 in DATA/office31, on an otherwise idle machine:
`python -m benchmarks.prediction --data DATA`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

import dial
from dial.allocator import keep_memory
from dial.data.datasets import open_domain
from dial.data.decode import cores
from dial.data.domain import Domain
from dial.data.transforms import Preprocessing
from dial.deployment.model import Model
from dial.deployment.prediction import BATCH, Predictions
from dial.deployment.runtime import NAME, export_for_many, onnx_runtime, torch_runtime

CPU = torch.device("cpu")


def prepare(size: int) -> Model:
    """Returns EfficientNet-Lite0 as it would be at the end of a run."""
    backbone = dial.backbones.create("efficientnet_lite0", num_classes=31)
    preprocessing = Preprocessing.for_network(backbone, size)
    classes = tuple(f"class {number:02}" for number in range(31))
    return Model(backbone.network.eval(), classes, preprocessing, backbone.name)


@dataclass(frozen=True)
class Task:
    """What one way of predicting is measured on, in a process of its own."""

    domain: str
    data: Path
    images: int
    size: int
    folder: Path
    """Where the exported network is."""

    def open(self) -> Domain:
        """Returns images from all over the domain."""
        whole = open_domain(f"office31:{self.domain}", data=self.data, unlabelled=True)
        rows = np.linspace(0, len(whole.images) - 1, self.images).astype(int)
        return Domain(whole.name, whole.images.take(np.unique(rows)))


def bare(task: Task) -> Callable[[], object]:
    """ONNX Runtime as it comes, which shares each batch among all cores, fed from memory."""
    import onnxruntime

    predictions = Predictions(prepare(task.size), [domain := task.open()], CPU)
    arrays = [images.numpy() for _, images in predictions.images(domain)]
    content = (task.folder / NAME).read_bytes()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda: [session.run(None, {"images": array}) for array in arrays]


def command(task: Task) -> Callable[[], object]:
    """What `dial predict` does, from files to a table."""
    runtime = onnx_runtime((task.folder / NAME).read_bytes(), workers=cores())
    predictions = Predictions(prepare(task.size), [task.open()], CPU, runtime=runtime)
    return lambda: predictions.write(task.folder / "labels.csv")


def network(task: Task) -> Callable[[], object]:
    """The same with the network itself in the place of its export."""
    model = prepare(task.size)
    predictions = Predictions(model, [task.open()], CPU, runtime=torch_runtime(model, CPU))
    return lambda: predictions.write(task.folder / "labels.csv")


def decoding(task: Task) -> Callable[[], object]:
    """Images alone, without a network."""
    predictions = Predictions(prepare(task.size), [domain := task.open()], CPU)
    return lambda: [len(names) for names, _ in predictions.images(domain)]


WAYS: dict[str, Callable[[Task], Callable[[], object]]] = {
    "exported network, from memory": bare,
    "dial predict": command,
    "the network itself, from files": network,
    "decoding alone": decoding,
}


def speed(way: str, task: Task) -> float:
    """Returns the images a second of one pass, after a first one that does not count."""
    with keep_memory():
        run = WAYS[way](task)
        run()
        started = time.perf_counter()
        run()
        return len(task.open().images) / (time.perf_counter() - started)


def measure(task: Task, *, rounds: int) -> dict[str, float]:
    """Returns the images a second of each way, the best of some rounds in turn.

    Each is a process of its own: ONNX Runtime's threads wait for work by spinning, and would take
    their time from the ways that come after.
    """
    best = dict.fromkeys(WAYS, 0.0)
    for _ in range(rounds):
        for way in WAYS:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                best[way] = max(best[way], process.submit(speed, way, task).result())
    return best


def main() -> None:
    """Print the images a second of each way, and their ratio to the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--domains", default="amazon,webcam,dslr")
    parser.add_argument("--images", type=int, default=10 * BATCH)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        export_for_many(prepare(arguments.size), images=10**9, folder=Path(folder), say=print)
        print(f"the export took {time.perf_counter() - started:.1f} s")
        for name in arguments.domains.split(","):
            task = Task(name, arguments.data, arguments.images, arguments.size, Path(folder))
            speeds = measure(task, rounds=arguments.rounds)
            baseline = speeds["exported network, from memory"]
            print(f"\n{name}, {arguments.images} images at {arguments.size} px")
            for way, found in speeds.items():
                print(f"  {way:<32} {found:7.1f} images a second  {found / baseline:5.2f}x")


if __name__ == "__main__":
    main()
