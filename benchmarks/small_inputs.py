"""The layer on small inputs, against torch's BatchNorm, for one or more versions of the project.

Run with `python -m benchmarks.small_inputs`; `--version before=OTHER/src` measures another checkout
in turn with this one. All versions of a row run in one process, round after round.
"""

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import dial
from benchmarks.layers import SHAPES, forward_backward
from benchmarks.tables import row, rule
from benchmarks.timing import best_times

SMALL = [((32, 64), torch.contiguous_format), ((8, 16, 7, 7), torch.contiguous_format)]
REPEATS = 4  # of a pass in each timing, for inputs that take microseconds


class Version(NamedTuple):
    """What is measured of one version of the project."""

    layer: Any
    use_domain: Any
    reference: Any  # as an object: a name would be looked up among the modules of now


def version_of(package: Any) -> Version:
    """Returns what is measured of an imported package, whose modules are the current ones."""
    normal = importlib.import_module("dial.references").resolve("normal")
    return Version(package.DomainAlignment, package.use_domain, normal)


def version_at(source: Path) -> Version:
    """Returns another checkout's layer, beside the package that is imported already."""
    mine = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "dial"}
    for name in mine:
        del sys.modules[name]
    sys.path.insert(0, str(source))
    try:
        other = importlib.import_module("dial")
        return version_of(other)
    finally:
        sys.path.remove(str(source))
        for name in [name for name in sys.modules if name.split(".")[0] == "dial"]:
            del sys.modules[name]
        sys.modules.update(mine)


def ratios(
    versions: dict[str, Version],
    shape: tuple[int, ...],
    layout: torch.memory_format,
    seconds: float,
) -> list[list[float]]:
    """Returns milliseconds of BatchNorm, and each version's times relative to it.

    In this order: one batch of one domain, two batches of one domain each, one joint batch.
    """
    x = torch.randn(shape) * 2 + 1
    x = (x.contiguous(memory_format=layout) if x.dim() > 2 else x).requires_grad_()
    g, channels = torch.randn_like(x), shape[1]
    sizes = [shape[0] * 2 // 3, shape[0] - shape[0] * 2 // 3]
    halves = [
        (part.detach().requires_grad_(), of)
        for part, of in zip(x.split(sizes), g.split(sizes), strict=True)
    ]

    def of_batch_norm() -> list[Callable[[], object]]:
        layer = nn.BatchNorm2d(channels) if x.dim() > 2 else nn.BatchNorm1d(channels)
        passes = [forward_backward(layer, *half) for half in halves]
        return [forward_backward(layer, x, g), lambda: [run() for run in passes]]

    def of_version(version: Version) -> list[Callable[[], object]]:
        layer = version.layer(channels, reference=version.reference)
        whole, *passes = (forward_backward(layer, *pair) for pair in [(x, g), *halves])
        joint_counts = dict(zip(layer.domains, sizes, strict=True))

        def separately() -> None:
            for domain, run in zip(layer.domains, passes, strict=True):
                with version.use_domain(layer, domain):
                    run()

        def jointly() -> None:
            with version.use_domain(layer, joint_counts):
                whole()

        return [whole, separately, jointly]

    runs = {"": of_batch_norm()} | {name: of_version(v) for name, v in versions.items()}
    repeats = REPEATS if x.numel() < 10_000 else 1
    candidates = {
        f"{name} {index}": (lambda run=run: [run() for _ in range(repeats)])
        for name, group in runs.items()
        for index, run in enumerate(group)
    }
    times = best_times(candidates, seconds=seconds)
    whole, two = times[" 0"], times[" 1"]
    kinds = enumerate((whole, two, whole))
    per_kind = [[times[f"{name} {kind}"] / base for name in versions] for kind, base in kinds]
    return [[whole * 1e3 / repeats], *per_kind]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", action="append", default=[], help="NAME=FOLDER of a checkout")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row")
    options = parser.parse_args()
    others = (text.split("=", 1) for text in options.version)
    versions = {name: version_at(Path(folder).resolve()) for name, folder in others}
    versions["now"] = version_of(dial)
    kinds = ("BatchNorm, ms", "one domain", "two passes", "joint 2:1")
    print(f"{torch.get_num_threads()} threads; ratios of {', '.join(versions)}\n")
    print(row(["input", *kinds]), rule(1 + len(kinds)), sep="\n")
    for shape, layout in [*SHAPES, *SMALL]:
        name = f"{shape}{', channels_last' if layout is torch.channels_last else ''}"
        cells = ratios(versions, shape, layout, options.seconds)
        texts = [", ".join(f"{value:.2f}" for value in cell) for cell in cells]
        print(row([name, *texts]), flush=True)


if __name__ == "__main__":
    main()
