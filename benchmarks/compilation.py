"""A training step of `dial`, compiled and not: its time, and what compiling takes first.

Run with `python -m benchmarks.compilation`, on an otherwise idle machine with a C++ compiler. For a
true start-up, without what an earlier one has compiled, add `TORCHINDUCTOR_FORCE_DISABLE_CACHES=1`.
"""

import argparse
import time
from collections.abc import Callable

import torch

import dial
from benchmarks.timing import best_times, show
from benchmarks.training import batch, updates
from dial.allocator import keep_memory
from dial.methods import Trainee
from dial.training.compilation import Compilation


def prepare(name: str) -> Trainee:
    """The network with DA-layers, in train mode."""
    made = dial.backbones.create(name, num_classes=31)
    trainee = dial.methods.create("dial").prepare(made).train()
    trainee.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return trainee


def step(trainee: Trainee, size: int) -> Callable[[], None]:
    """A step of the method on random images."""
    method, images = dial.methods.create("dial"), batch(size)
    if len(trainee.backbone.mean) == 1:
        gray = images.source[:, :1], images.target[:, :1] if images.target is not None else None
        images = images._replace(source=gray[0], target=gray[1])
    return updates(
        trainee, lambda: (sum(terms.values()) for terms in method.terms(trainee, images, 0.5))
    )


def compiled_step(trainee: Trainee, size: int) -> Callable[[], None]:
    """The same, with the network's parts compiled."""
    plain = step(trainee, size)
    compilation = Compilation(trainee.network, classifier=trainee.backbone.classifier)

    def run() -> None:
        with compilation.step():
            plain()

    return run


def main() -> None:
    """Print the first compiled step's time, and later steps' beside those without compiling."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    compiled = compiled_step(prepare(arguments.backbone), arguments.size)
    with keep_memory():
        started = time.perf_counter()
        compiled()
        print(f"first compiled step: {time.perf_counter() - started:.0f} s", flush=True)
        plain = step(prepare(arguments.backbone), arguments.size)
        times = best_times({"plain": plain, "compiled": compiled}, seconds=arguments.seconds)
    show(f"training step, {arguments.backbone}, {arguments.size} px", times, {})


if __name__ == "__main__":
    main()
