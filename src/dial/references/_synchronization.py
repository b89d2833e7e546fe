"""Statistics of a batch that several processes share: each sees those of the whole of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

_paused = False


def processes() -> int:
    """How many processes share every batch; 1 outside of distributed training."""
    if _paused or not dist.is_available() or not dist.is_initialized():
        return 1
    return dist.get_world_size()


@contextmanager
def paused() -> Iterator[None]:
    """Statistics of this process alone, for passes that not all processes make."""
    global _paused  # noqa: PLW0603 - as torch's own default group, one for the process
    former, _paused = _paused, True
    try:
        yield
    finally:
        _paused = former


def pooled_moments(mean: Tensor, var: Tensor, count: int) -> tuple[Tensor, Tensor, int]:
    """Mean, biased variance and number of values of all processes' parts together.

    Args:
        mean: of this process's part, `(C,)`.
        var: of this process's part, `(C,)`.
        count: values a channel in it.
    """
    own = torch.cat([mean, var, mean.new_tensor([count])]).double()
    parts = [torch.empty_like(own) for _ in range(processes())]
    dist.all_gather(parts, own)
    means, variances, counts = torch.stack(parts).split([len(mean), len(mean), 1], dim=1)
    total = counts.sum()
    pooled = (means * counts).sum(0) / total
    spread = ((variances + (means - pooled) ** 2) * counts).sum(0) / total
    return pooled.to(mean.dtype), spread.to(var.dtype), int(total)


def summed(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The sums of tensors over all processes."""
    stacked = torch.stack(tensors)
    dist.all_reduce(stacked)
    return tuple(stacked)
