"""A step of `dial` on EfficientNet-Lite0, 32 + 16 images: its memory and its time.

Run with `make bench`, on an otherwise idle machine. Memory is the peak of a process of its own
for each way, so that what one leaves behind is not counted for the other.
"""

import argparse
import copy
import resource
import subprocess
import sys
from collections.abc import Callable

import torch
from torch import nn

import dial
from benchmarks.timing import best_times, show
from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.methods import Method, Trainee

SOURCE, TARGET = 32, 16
MEMORY_GOAL = 0.75
TIME_GOAL = 1.05


def batch(size: int, channels: int = 3) -> Batch:
    """Random images of both domains."""
    torch.manual_seed(0)
    source, target = (
        torch.randn(count, channels, size, size).contiguous(memory_format=torch.channels_last)
        for count in (SOURCE, TARGET)
    )
    return Batch(source, torch.randint(31, (SOURCE,)), target)


def backbone(name: str = "efficientnet_lite0") -> Backbone:
    """A network, as pretrained."""
    made = dial.backbones.create(name, num_classes=31)
    made.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made


def updates(module: nn.Module, losses: Callable[[], object]) -> Callable[[], None]:
    """A step: gradients of what `losses` yields, and an update."""
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        for loss in losses():  # type: ignore[attr-defined]
            loss.backward()
        optimizer.step()

    return step


def of_dial(passes: str, images: Batch, reference: str = "anchored") -> Callable[[], None]:
    """A step of the method."""
    method = dial.methods.create("dial", {"passes": passes, "reference": reference})
    return of_method(method, method.prepare(backbone()).train(), images)


def of_method(method: Method, trainee: Trainee, images: Batch) -> Callable[[], None]:
    """A step of a method on a network that it has prepared."""
    return updates(
        trainee, lambda: (sum(terms.values()) for terms in method.terms(trainee, images, 0.5))
    )


def of_plain(images: Batch) -> Callable[[], None]:
    """Two plain forward-backward passes over the same images, with BatchNorm in training mode."""
    trainee = Trainee(copy.deepcopy(backbone())).train()
    assert images.target is not None  # noqa: S101 - as made above
    parts = [images.source, images.target]
    return updates(trainee, lambda: (trainee(part).logits.square().mean() for part in parts))


def peak() -> float:
    """The most memory that this process had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory(passes: str, size: int) -> None:
    """Print what this process had before any image, and at most in three steps."""
    step = of_dial(passes, batch(2))
    start = peak()
    step = of_dial(passes, batch(size))
    for _ in range(3):
        step()
    print(start, peak())


def show_memory(size: int) -> None:
    """The peak of each way of passing, over what the process takes without images, and in all."""
    of_steps, in_all = {}, {}
    for passes in ("joint", "separate"):
        command = [sys.executable, "-m", "benchmarks.training", "--memory", passes]
        told = subprocess.run(  # noqa: S603 - this very file
            [*command, "--size", str(size)], check=True, capture_output=True, text=True
        )
        start, most = map(float, told.stdout.split())
        of_steps[passes], in_all[passes] = most - start, most
    ratio = of_steps["separate"] / of_steps["joint"]
    missed = "" if ratio < MEMORY_GOAL else "  MISSED"
    print(f"\npeak memory of dial, EfficientNet-Lite0, {SOURCE} + {TARGET} images of {size} px")
    for passes, amount in of_steps.items():
        print(f"  {passes:<12} {amount:8.0f} MB for steps {in_all[passes]:8.0f} MB in all")
    total = in_all["separate"] / in_all["joint"]
    print(f"  ratio {ratio:.2f}x for steps, {total:.2f}x in all  goal {MEMORY_GOAL}x{missed}")


def main() -> None:
    """Memory and time at one image size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--memory", choices=["joint", "separate"], help="of this way, in MB")
    options = parser.parse_args()
    if options.memory:
        memory(options.memory, options.size)
        return
    for size in (options.size, 224):
        show_memory(size)
    images = batch(options.size)
    candidates = {
        "two plain passes": of_plain(images),
        "normal, separate passes": of_dial("separate", images, "normal"),
        "normal, joint pass": of_dial("joint", images, "normal"),
        "anchored, separate passes": of_dial("separate", images),
        "anchored, joint pass": of_dial("joint", images),
    }
    title = f"training step, EfficientNet-Lite0, {SOURCE} + {TARGET} images of {options.size} px"
    goals = {name: TIME_GOAL for name in candidates if "separate" in name}
    show(title, best_times(candidates, seconds=90), goals)


if __name__ == "__main__":
    main()
