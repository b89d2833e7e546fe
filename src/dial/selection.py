"""The middle values of many channels at once, exactly, and for large batches without sorting."""

import torch
from torch import Tensor

_FEW_VALUES = 1 << 17  # below this, sorting costs less than the probes' overhead
_EXACT_SUMS = 1 << 24  # a float32 counts exactly up to here
_PROBES = 16


def middle(x: Tensor) -> tuple[Tensor, Tensor]:
    """Where the lower and the upper middle value of each channel are.

    Args:
        x: `(A, C, B)`; a channel's `n = A B` values lie in the first and the last dimension.

    Returns:
        Two integer tensors `(C,)` of positions `a * B + b`; the same one twice for odd `n`. The
        median is the mean of the two values there.
    """
    count = x.shape[0] * x.shape[2]
    if x.device.type != "cpu" or x.numel() < _FEW_VALUES or count > _EXACT_SUMS:
        return _by_sorting(x)
    return _by_probing(x)


def at(x: Tensor, position: Tensor) -> Tensor:
    """The values of `(A, C, B)` at one position a channel, as `middle` gives them; `(C,)`."""
    channel = torch.arange(x.shape[1], device=x.device)
    return x[position // x.shape[2], channel, position % x.shape[2]]


def _by_sorting(x: Tensor) -> tuple[Tensor, Tensor]:
    order = x.transpose(0, 1).flatten(1).argsort(dim=1)
    count = order.shape[1]
    return order[:, (count - 1) // 2], order[:, count // 2]


def _by_probing(x: Tensor) -> tuple[Tensor, Tensor]:
    """Find for each channel a threshold with as many values above as below; then its neighbours.

    A probe counts, in one pass, how many more values lie above the threshold than below it; the
    next threshold is interpolated between the nearest ones on either side. Channels that are
    settled drop out. The few that are not after all probes (many equal values, infinities) are
    sorted.
    """
    count = x.shape[0] * x.shape[2]
    odd = count % 2
    var, threshold = torch.var_mean(x[:: max(1, x.shape[0] // 64)], dim=(0, 2))
    settled, excess = threshold.clone(), torch.zeros_like(threshold)
    bound = torch.full_like(threshold, torch.inf)
    step = var.sqrt() * 1.2533  # of the normal distribution: 1 / (2 * its density at the median)
    # A row each: the threshold; the nearest probe below and above it; their surpluses; the step.
    state = torch.stack([threshold, -bound, bound, bound, bound, step])
    left, values = torch.arange(x.shape[1]), x
    for _ in range(_PROBES):
        surplus = _surplus(values, state[0])
        settled[left], excess[left] = state[0], surplus
        undecided = ~((surplus.abs() <= odd) & state[0].isfinite())
        if undecided.sum() <= len(left) / 2:
            keep = undecided.nonzero().squeeze(1)
            left, values, state = left[keep], values[:, keep], state[:, keep]
            surplus, undecided = surplus[keep], undecided[keep]
        if len(left) == 0:
            break
        threshold, below, above, over, under, step = state
        high = surplus > 0
        below, over = torch.where(high, threshold, below), torch.where(high, surplus, over)
        above, under = torch.where(high, above, threshold), torch.where(high, under, surplus)
        between = below + (above - below) * (over / (over - under))
        probe = torch.where(between.isfinite(), between, threshold + step * surplus / count)
        threshold = torch.where(undecided, probe, threshold)
        state = torch.stack([threshold, below, above, over, under, step])

    lower, upper = _neighbours(x, settled, excess, odd=bool(odd))
    left = left[~((excess[left].abs() <= odd) & settled[left].isfinite())]
    if len(left):
        lower[left], upper[left] = _by_sorting(x[:, left])
    return lower, upper


def _surplus(x: Tensor, threshold: Tensor) -> Tensor:
    """How many more values of a channel are above its threshold than below it."""
    signs = (x - threshold[:, None]).sign_()
    return signs.squeeze(2).sum(0) if x.shape[2] == 1 else signs.sum(2).sum(0)


def _neighbours(
    x: Tensor, threshold: Tensor, surplus: Tensor, *, odd: bool
) -> tuple[Tensor, Tensor]:
    """The positions of the values next to a settled threshold, below and above it."""
    closeness = (x - threshold[:, None]).reciprocal_()  # the nearest have the largest
    lower, upper = _argmax(closeness.neg()), _argmax(closeness)
    on_it = at(closeness, upper).isinf()  # a value equal to the threshold is the median
    return (
        torch.where(on_it | (surplus > 0 if odd else on_it), upper, lower),
        torch.where(on_it.logical_not() & (surplus < 0), lower, upper) if odd else upper,
    )


def _argmax(x: Tensor) -> Tensor:
    """The position of each channel's largest value, in two steps: the block, and within it."""
    channel = torch.arange(x.shape[1])
    if x.shape[2] > 1:
        row = x.amax(2).argmax(0)
        return row * x.shape[2] + x[row, channel].argmax(1)
    size = next(size for size in range(int(x.shape[0] ** 0.5), 0, -1) if x.shape[0] % size == 0)
    folded = x.view(-1, size, x.shape[1])
    block = folded.amax(1).argmax(0)
    return block * size + folded[block, :, channel].argmax(1)
