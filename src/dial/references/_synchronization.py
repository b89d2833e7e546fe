"""Distributed training: every process sees the moments of the whole global batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_paused = False


def processes() -> int:
    """Returns how many processes share every batch; 1 outside of distributed training."""
    if _paused or not dist.is_available() or not dist.is_initialized():
        return 1
    return dist.get_world_size()


@contextmanager
def unsynchronized() -> Iterator[None]:
    """Use the statistics of this process alone, for passes that not all processes make."""
    global _paused  # noqa: PLW0603 - one per process, like torch's default group
    former, _paused = _paused, True
    try:
        yield
    finally:
        _paused = former


def global_moments(mean: Tensor, var: Tensor, count: int) -> tuple[Tensor, Tensor, int]:
    """Returns mean, biased variance and number of values of all processes' parts together.

    Args:
        mean: of this process's part, `(C,)`.
        var: of this process's part, `(C,)`.
        count: values per channel in it.
    """
    part = torch.cat([mean, var, mean.new_tensor([count])]).double()
    parts = [torch.empty_like(part) for _ in range(processes())]
    dist.all_gather(parts, part)
    means, variances, counts = torch.stack(parts).split([len(mean), len(mean), 1], dim=1)
    total = counts.sum()
    global_mean = (means * counts).sum(0) / total
    global_var = ((variances + (means - global_mean) ** 2) * counts).sum(0) / total
    return global_mean.to(mean.dtype), global_var.to(var.dtype), int(total)


class _GlobalSum(torch.autograd.Function):
    """The sum over all processes; so is the gradient, as every process uses the sum."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:  # noqa: ARG004
        return global_sums(tensor)[0]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # noqa: ARG004
        return global_sums(g)[0]


def differentiable_sum(tensor: Tensor) -> Tensor:
    """Returns the sum of a tensor over all processes, through which gradients pass.

    The tensor itself, if there is one process.
    """
    total: Tensor = _GlobalSum.apply(tensor) if processes() > 1 else tensor
    return total


def global_sums(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Returns the sums of tensors over all processes."""
    stacked = torch.stack(tensors)
    dist.all_reduce(stacked)
    return tuple(stacked)
