"""DA-layers in your own training loop: from MNIST's digits to scanned ones without labels.

Trains the same small network twice, as it is and with DA-layers, and prints the accuracy of each
on the unlabelled digits. A few minutes on two cores:

    python examples/digits.py
"""

import argparse
import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from digits_data import distort, load, network
from torch import Tensor, nn

import dial

BATCH = 64


def batches(count: int) -> Iterator[Tensor]:
    """Yields indices of random batches without end, in a new shuffle for each pass."""
    while True:
        yield from torch.randperm(count).split(BATCH)[: count // BATCH]


def train_plain(model: nn.Module, source: Tensor, labels: Tensor, *, steps: int) -> nn.Module:
    """Returns the network after training on the source alone."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for rows in itertools.islice(batches(len(source)), steps):
        optimizer.zero_grad()
        F.cross_entropy(model(distort(source[rows])), labels[rows]).backward()
        optimizer.step()
    return model.eval()


def train_aligned(
    model: nn.Module, source: Tensor, labels: Tensor, target: Tensor, *, steps: int
) -> nn.Module:
    """Returns the network for the target, after training with DA-layers on both domains."""
    model = dial.convert(model, append_after=["13"])  # the classifier's logits are aligned too
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    pairs = zip(batches(len(source)), batches(len(target)), strict=False)
    for step, (of_source, of_target) in enumerate(itertools.islice(pairs, steps)):
        both = distort(torch.cat([source[of_source], target[of_target]]))
        with dial.use_domain(model, {"source": BATCH, "target": BATCH}):
            logits = model(both)
        # Entropy makes predictions sure, right or wrong: it waits until most are right.
        weight = 0.3 * min(1.0, max(0.0, 4 * step / steps - 1))
        loss = F.cross_entropy(logits[:BATCH], labels[of_source])
        loss = loss + weight * dial.losses.entropy(logits[BATCH:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"  step {step:4d}/{steps}  loss {loss.item():.3f}", flush=True)
    dial.calibrate(model, target.split(256), domain="target")  # statistics of all its images
    return dial.fold(model, domain="target").eval()  # a plain network: nothing of dial in it


def main() -> None:
    """Train without and with adaptation, and compare on the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    source, labels = load("mnist")
    target, truth = load("optdigits")  # the labels are for scoring alone
    for name in ("source only", "DIAL"):
        torch.manual_seed(options.seed)
        model = network()
        if name == "DIAL":
            plain = train_aligned(model, source, labels, target, steps=options.steps)
        else:
            plain = train_plain(model, source, labels, steps=options.steps)
        with torch.no_grad():
            accuracy = (plain(target).argmax(1) == truth).double().mean().item()
        print(f"{name}: accuracy on the target {accuracy:.1%}", flush=True)


if __name__ == "__main__":
    main()
