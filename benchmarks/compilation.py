"""A training step of `dial`, compiled and not: its time, and what compiling takes first.

Run with `python -m benchmarks.compilation`, on an otherwise idle machine with a C++ compiler. For a
true start-up, without what an earlier one has compiled, add `TORCHINDUCTOR_FORCE_DISABLE_CACHES=1`.
"""

import argparse
import time
from collections.abc import Callable

import dial
from benchmarks.timing import best_times, show
from benchmarks.training import backbone, batch, of_method
from dial.allocator import keep_memory
from dial.methods import Trainee
from dial.training.compilation import Compilation


def prepare(name: str, size: int) -> tuple[Trainee, Callable[[], None]]:
    """The network with DA-layers, and a step of the method on random images."""
    method, made = dial.methods.create("dial"), backbone(name)
    trainee = method.prepare(made).train()
    return trainee, of_method(method, trainee, batch(size, channels=len(made.mean)))


def compiled(name: str, size: int) -> Callable[[], None]:
    """Such a step with the network's parts compiled."""
    trainee, plain = prepare(name, size)
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
    fast = compiled(arguments.backbone, arguments.size)
    with keep_memory():
        started = time.perf_counter()
        fast()
        print(f"first compiled step: {time.perf_counter() - started:.0f} s", flush=True)
        _, plain = prepare(arguments.backbone, arguments.size)
        times = best_times({"plain": plain, "compiled": fast}, seconds=arguments.seconds)
    show(f"training step, {arguments.backbone}, {arguments.size} px", times, {})


if __name__ == "__main__":
    main()
