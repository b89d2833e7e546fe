"""Two real processes over gloo against one, in float64: statistics, outputs and gradients."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing, nn

import dial
from dial.references import (
    Anchored,
    Normal,
    Reference,
    Whitened,
    _synchronization,
    unsynchronized,
)

SIZES = {"source": 16, "target": 8}
REFERENCES: dict[str, Reference] = {
    "normal": Normal(),
    "epsilon": Normal(eps=1.0),
    "anchored": Anchored(0.3),
    "whitened": Whitened(3),
}
CASES = [(name, joint) for name in (*REFERENCES, "autodial") for joint in (True, False)]


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)]
    layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    nn.init.normal_(layers[1].running_mean)
    model: nn.Module = nn.Sequential(*layers, nn.Linear(8, 4))
    mixing = "autodial" if name == "autodial" else None
    reference = REFERENCES.get(name, Normal())
    model = dial.convert(model, reference, append_after=["8"], mixing=mixing).double()
    for own_weight in (p for p in model.parameters() if p.dim() == 0):
        own_weight.data.fill_(0.7)
    return model


def images() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(24, 3, 12, 12, generator=generator, dtype=torch.float64)


def backward(model: nn.Module, x: Tensor, share: int, *, joint: bool) -> None:
    n, k = SIZES["source"] // share, SIZES["target"] // share
    if joint:
        with dial.use_domain(model, {"source": n, "target": k}):
            logits = model(x)
        (logits[:n].square().mean() + dial.losses.entropy(logits[n:])).backward()
        return
    with dial.use_domain(model, "source"):
        model(x[:n]).square().mean().backward()
    with dial.use_domain(model, "target"):
        dial.losses.entropy(model(x[n:])).backward()


def train(name: str, *, joint: bool, rank: int, folder: Path) -> None:
    model, x = network(name), images()
    parts = [part.chunk(2)[rank] for part in x.split(list(SIZES.values()))]
    shared = nn.parallel.DistributedDataParallel(model)
    backward(shared, torch.cat(parts), 2, joint=joint)
    if rank == 0:
        gradients = {f"{n}.grad": p.grad for n, p in model.named_parameters()}
        torch.save(gradients | model.state_dict(), folder / f"{name}-{joint}.pt")
        with unsynchronized():  # a pass that only this process makes does not wait
            model(x)
    dist.barrier()


def worker(rank: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": str(rank), "WORLD_SIZE": "2"}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for name, joint in CASES:
        train(name, joint=joint, rank=rank, folder=folder)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The states that two processes came to, a file for each case: they start once for all."""
    folder = tmp_path_factory.mktemp("two_processes")
    multiprocessing.spawn(worker, (folder,), nprocs=2)
    return folder


@pytest.mark.parametrize(("name", "joint"), CASES)
def test_two_processes_see_the_statistics_of_the_whole_batch(
    name: str, joint: bool, trained: Path
) -> None:
    model = network(name)
    backward(model, images(), 1, joint=joint)
    expected = {f"{n}.grad": p.grad for n, p in model.named_parameters()} | model.state_dict()
    results = torch.load(trained / f"{name}-{joint}.pt", weights_only=True)
    assert results.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(results[key], value, atol=1e-12, rtol=1e-9)


def test_one_process_shares_with_nobody() -> None:
    assert _synchronization.processes() == 1
