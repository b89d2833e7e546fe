"""Exact medians of many channels at once; for large batches without sorting.

Values are `(A, C, B)`: the `n = A B` values of a channel lie in the first and last dimension.
"""

import torch
from torch import Tensor

from dial.references.interface import widen

_FEW_VALUES = 1 << 17  # below this, torch's kthvalue costs less than the probes' overhead
_EXACT_SUMS = 1 << 24  # a float32 counts exactly up to here
_FIRST_GUESS = 128  # values per channel for the first threshold
_PROBES = 16


def by_channel(x: Tensor) -> Tensor:
    """Returns `(N, C, *)` as `(A, C, B)`: a view, where the memory format allows one."""
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d  # noqa: PLR2004
    if x.dim() in (4, 5) and x.is_contiguous(memory_format=last) and not x.is_contiguous():
        return x.movedim(1, -1).flatten(0, -2).unsqueeze(2)
    return x.unsqueeze(2) if x.dim() == 2 else x.flatten(2)  # noqa: PLR2004


def median(x: Tensor) -> Tensor:
    """Returns the median of each channel of `(A, C, B)`, differentiable; `(C,)`."""
    lower, upper = middle(x.detach())
    return (at(x, lower) + at(x, upper)) / 2


def middle(x: Tensor, scratch: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns the positions of the lower and the upper middle value of each channel.

    Args:
        x: `(A, C, B)`.
        scratch: memory like that of `x` that may be overwritten, if the caller has some.

    Returns:
        Two integer tensors `(C,)` of positions `a * B + b`, equal for odd `n`. The median is the
        mean of the two values there.
    """
    count = x.shape[0] * x.shape[2]
    if x.device.type != "cpu" or x.numel() < _FEW_VALUES or count > _EXACT_SUMS:
        return _by_kthvalue(x)
    x = x.contiguous()
    return _by_probing(x, torch.empty_like(x) if scratch is None else scratch)


def at(x: Tensor, position: Tensor) -> Tensor:
    """Returns the values of `(A, C, B)` at one position per channel, `(C,)`; see `middle`."""
    channel = torch.arange(x.shape[1], device=x.device)
    return x[position // x.shape[2], channel, position % x.shape[2]]


def channel_sums(x: Tensor) -> Tensor:
    """Returns the sum over each channel of `(A, C, B)`; `(C,)`."""
    return x.squeeze(2).sum(0) if x.shape[2] == 1 else x.sum(2).sum(0)


def _by_kthvalue(x: Tensor) -> tuple[Tensor, Tensor]:
    values = x.transpose(0, 1).flatten(1)
    count = values.shape[1]
    lower = values.kthvalue((count + 1) // 2, dim=1).indices
    upper = lower if count % 2 else values.kthvalue(count // 2 + 1, dim=1).indices
    return lower, upper


def _by_probing(x: Tensor, scratch: Tensor) -> tuple[Tensor, Tensor]:
    """Find for each channel a threshold with as many values above as below, then its neighbors.

    A probe counts in one pass how many more values lie above the threshold than below it. The
    next threshold is interpolated between the nearest ones on either side. Channels whose
    threshold is final drop out. The few that are open after all probes (many equal values,
    infinities, a first guess that was far off) are left to `kthvalue`.
    """
    count = x.shape[0] * x.shape[2]
    odd = count % 2
    sample = widen(x[: -(-_FIRST_GUESS // x.shape[2])])
    threshold, var = torch.batch_norm_update_stats(sample, None, None, 0.0)
    final, excess = threshold.clone(), torch.full_like(threshold, torch.inf)
    # The nearest thresholds below and above the median, with the surplus there; at first a guess.
    below, above = threshold - 2 * var.sqrt(), threshold + 2 * var.sqrt()
    over = torch.full_like(threshold, 0.95 * count)
    under = -over
    channels, values = torch.arange(x.shape[1]), x
    for _ in range(_PROBES):
        surplus = channel_sums(_centered(values, threshold, scratch).sign_())
        is_open = surplus.abs() > odd
        if is_open.sum() <= len(channels) / 2:
            final[channels], excess[channels] = threshold, surplus
            rest = is_open.nonzero().squeeze(1)
            channels, values = channels[rest], values.index_select(1, rest)
            if values.numel() < _FEW_VALUES // 16:
                break
            threshold, surplus, is_open, below, above, over, under = (
                row[rest] for row in (threshold, surplus, is_open, below, above, over, under)
            )
        high = surplus > 0
        below, over = torch.where(high, threshold, below), torch.where(high, surplus, over)
        above, under = torch.where(high, above, threshold), torch.where(high, under, surplus)
        probe = below + (above - below) * (over / (over - under))
        threshold = torch.where(is_open, probe, threshold)

    closeness = _centered(x, final, scratch).reciprocal_()  # largest for the nearest values
    lower, upper = _neighbors(closeness, excess, odd=bool(odd))
    rest = (~((excess.abs() <= odd) & final.isfinite())).nonzero().squeeze(1)
    if len(rest):
        lower[rest], upper[rest] = _by_kthvalue(x.index_select(1, rest))
    return lower, upper


def _centered(x: Tensor, threshold: Tensor, scratch: Tensor) -> Tensor:
    """Returns `x - threshold` in existing memory: new pages cost more than the subtraction."""
    out = scratch.view(-1)[: x.numel()].view(x.shape)
    return torch.sub(x, threshold[:, None], out=out)


def _neighbors(closeness: Tensor, surplus: Tensor, *, odd: bool) -> tuple[Tensor, Tensor]:
    """Returns the positions of the values next to the threshold, below and above it."""
    lower, upper = _extreme(closeness, largest=False), _extreme(closeness, largest=True)
    hit = at(closeness, upper).isinf()  # a value equal to the threshold is the median
    if not odd:
        return torch.where(hit, upper, lower), upper
    one = torch.where(hit | (surplus > 0), upper, lower)
    return one, one.clone()


def _extreme(x: Tensor, *, largest: bool) -> Tensor:
    """Returns the position of each channel's extreme value: first the block, then within it."""
    reduce = torch.amax if largest else torch.amin
    if x.shape[2] > 1:
        blocks, size = x.transpose(1, 2), x.shape[2]
    else:
        root = int(x.shape[0] ** 0.5)
        size = next(size for size in range(root, 0, -1) if x.shape[0] % size == 0)
        blocks = x.view(-1, size, x.shape[1])
    extremes = reduce(blocks, 1)
    extreme = reduce(extremes, 0)
    block = _index(extremes, extreme)
    within = blocks[block, :, torch.arange(x.shape[1])].t()
    return block * size + _index(within, extreme)


def _index(x: Tensor, value: Tensor) -> Tensor:
    """Returns the row of `(n, C)` in which each channel has its value; faster than argmax."""
    rows = torch.arange(len(x), dtype=torch.float32)[:, None]
    return torch.where(x == value, rows, 0.0).amax(0).long()
