"""The middle values of many channels at once, exactly, and for large batches without sorting."""

import torch
from torch import Tensor

from dial.references import _fused as kernels

_FEW_VALUES = 1 << 17  # below this, torch's selection costs less than the probes' overhead
_EXACT_SUMS = 1 << 24  # a float32 counts exactly up to here
_FIRST_GUESS = 128  # values a channel for the first threshold
_PROBES = 16


def middle(x: Tensor, scratch: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Where the lower and the upper middle value of each channel are.

    Args:
        x: `(A, C, B)`; a channel's `n = A B` values lie in the first and the last dimension.
        scratch: memory like that of `x` which may be written over, where the caller has some.

    Returns:
        Two integer tensors `(C,)` of positions `a * B + b`; the same one twice for odd `n`. The
        median is the mean of the two values there.
    """
    count = x.shape[0] * x.shape[2]
    if x.device.type != "cpu" or x.numel() < _FEW_VALUES or count > _EXACT_SUMS:
        return _by_selecting(x)
    x = x.contiguous()
    return _by_probing(x, torch.empty_like(x) if scratch is None else scratch)


def at(x: Tensor, position: Tensor) -> Tensor:
    """The values of `(A, C, B)` at one position a channel, as `middle` gives them; `(C,)`."""
    channel = torch.arange(x.shape[1], device=x.device)
    return x[position // x.shape[2], channel, position % x.shape[2]]


def channel_sums(x: Tensor) -> Tensor:
    """The sum over each channel of `(A, C, B)`; `(C,)`."""
    return x.squeeze(2).sum(0) if x.shape[2] == 1 else x.sum(2).sum(0)


def _by_selecting(x: Tensor) -> tuple[Tensor, Tensor]:
    values = x.transpose(0, 1).flatten(1)
    count = values.shape[1]
    lower = values.kthvalue((count + 1) // 2, dim=1).indices
    upper = lower if count % 2 else values.kthvalue(count // 2 + 1, dim=1).indices
    return lower, upper


def _by_probing(x: Tensor, scratch: Tensor) -> tuple[Tensor, Tensor]:
    """Find for each channel a threshold with as many values above as below; then its neighbours.

    A probe counts, in one pass, how many more values lie above the threshold than below it; the
    next threshold is interpolated between the nearest ones on either side. Channels that are
    settled drop out. The few that are not after all probes (many equal values, infinities, a
    first guess that was far off) are left to torch.
    """
    count = x.shape[0] * x.shape[2]
    odd = count % 2
    threshold, var = kernels.moments(x[: -(-_FIRST_GUESS // x.shape[2])])
    settled, excess = threshold.clone(), torch.full_like(threshold, torch.inf)
    # The nearest thresholds below and above the median, and the surpluses there: first a guess.
    below, above = threshold - 2 * var.sqrt(), threshold + 2 * var.sqrt()
    over = torch.full_like(threshold, 0.95 * count)
    under = -over
    left, values = torch.arange(x.shape[1]), x
    for _ in range(_PROBES):
        surplus = channel_sums(_centred(values, threshold, scratch).sign_())
        undecided = surplus.abs() > odd
        if undecided.sum() <= len(left) / 2:
            settled[left], excess[left] = threshold, surplus
            keep = undecided.nonzero().squeeze(1)
            left, values = left[keep], values.index_select(1, keep)
            if values.numel() < _FEW_VALUES // 16:
                break
            threshold, surplus, undecided, below, above, over, under = (
                row[keep] for row in (threshold, surplus, undecided, below, above, over, under)
            )
        high = surplus > 0
        below, over = torch.where(high, threshold, below), torch.where(high, surplus, over)
        above, under = torch.where(high, above, threshold), torch.where(high, under, surplus)
        probe = below + (above - below) * (over / (over - under))
        threshold = torch.where(undecided, probe, threshold)

    closeness = _centred(x, settled, scratch).reciprocal_()  # the nearest have the largest
    lower, upper = _neighbours(closeness, excess, odd=bool(odd))
    left = (~((excess.abs() <= odd) & settled.isfinite())).nonzero().squeeze(1)
    if len(left):
        lower[left], upper[left] = _by_selecting(x.index_select(1, left))
    return lower, upper


def _centred(x: Tensor, threshold: Tensor, scratch: Tensor) -> Tensor:
    """`x - threshold` in memory that is there already: fresh pages cost more than the sum."""
    out = scratch.view(-1)[: x.numel()].view(x.shape)
    return torch.sub(x, threshold[:, None], out=out)


def _neighbours(closeness: Tensor, surplus: Tensor, *, odd: bool) -> tuple[Tensor, Tensor]:
    """The positions of the values next to a settled threshold, below and above it."""
    lower, upper = _extreme(closeness, largest=False), _extreme(closeness, largest=True)
    on_it = at(closeness, upper).isinf()  # a value equal to the threshold is the median
    if not odd:
        return torch.where(on_it, upper, lower), upper
    one = torch.where(on_it | (surplus > 0), upper, lower)
    return one, one.clone()


def _extreme(x: Tensor, *, largest: bool) -> Tensor:
    """The position of each channel's extreme value, in two steps: the block, and within it."""
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
    """Where in `(n, C)` each channel has its value; faster than torch's argmax."""
    rows = torch.arange(len(x), dtype=torch.float32)[:, None]
    return torch.where(x == value, rows, 0.0).amax(0).long()
