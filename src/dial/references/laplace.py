"""The standard Laplace distribution: maximum likelihood."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dial.references import _fused as kernels
from dial.references import _medians as selection
from dial.references.interface import Reference, Shared, Statistics, Tracking


@dataclass(frozen=True)
class Laplace(Reference):
    """`y = (x - median) / s` with `s` the mean absolute deviation from the median.

    Both are the maximum-likelihood estimates of the distribution's location and *scale*, so the
    output's median is 0 and its mean absolute value 1. (The paper writes the scale under a
    root.) An even number of values has the mean of the two middle ones as its median. `s` is at
    least `sqrt(eps)`, the floor that batch normalisation has under its deviation.

    Across processes each takes the estimates of its own part of the batch: a median does not
    follow from the medians of the parts, and gathering all activations would cost more than it
    is worth.
    """

    eps: float = 1e-5

    def estimate(self, x: Tensor) -> Statistics:
        """Median and mean absolute deviation from it."""
        values = _folded(x)
        lower, upper = selection.middle(values.detach())
        median = (selection.at(values, lower) + selection.at(values, upper)) / 2
        return Statistics(median, (values - median[:, None]).abs().mean(dim=(0, 2)))

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The median, and the squared deviation."""
        return statistics.location, statistics.spread.square().clamp_min(self.eps)

    def align(self, x: Tensor, shared: Shared, tracking: Tracking) -> Tensor:
        """One domain's batch: fused, where this device has the kernels."""
        if not kernels.runs_fused(x):
            return super().align(x, shared, tracking)
        wide = kernels.dense_like(kernels.widen(x), x)
        weight, bias, _ = shared
        y, median, deviation = _Laplace.apply(wide, weight, bias, self.eps)
        tracking.update(Statistics(median, deviation))
        return y.to(x.dtype)  # type: ignore[no-any-return]


class _Laplace(torch.autograd.Function):
    """Aligned batch, median and deviation, with the gradient in closed form.

    With `h = (x - b) / s`, `G0 = sum g`, `G1 = sum g h`, and `e` the mean sign of `x - b` (zero
    unless values are tied with the median),

        dx = weight / s * (g - (sign(x - b) / n) G1 - (G0 - e G1) db/dx)

    where `db/dx` is a half at each of the two middle values and zero elsewhere.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        values, y = _folded(x), torch.empty_like(x)
        lower, upper = selection.middle(values, scratch=_folded(y))
        median = (selection.at(values, lower) + selection.at(values, upper)) / 2
        distance = _folded(torch.sub(x, kernels.per_channel(median, x), out=y).abs_())
        deviation = selection.channel_sums(distance) / (values.shape[0] * values.shape[2])
        square = deviation.square().clamp_min(eps)
        kernels.affine_(y, x, median, square, weight, bias)
        ctx.save_for_backward(x, weight, lower, upper, median, deviation, square)
        ctx.mark_non_differentiable(median, deviation)
        return y, median, deviation

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, lower, upper, median, deviation, square = ctx.saved_tensors
        count = x.numel() // x.shape[1]
        g = kernels.dense_like(g, x)
        inverse = square.rsqrt()
        sum0, sum1 = kernels.gradient_sums(g, x, median, inverse)
        factor = inverse if weight is None else inverse * weight
        # At the floor the scale is a constant.
        scale_sum = sum1 * (deviation.square() >= square)
        dx = (x - kernels.per_channel(median, x)).sign_()
        tied = selection.channel_sums(_folded(dx)) / count
        dx.mul_(kernels.per_channel(-scale_sum / count, x)).add_(g)
        shift = (sum0 - tied * scale_sum) / 2
        folded = _folded(dx)
        channel = torch.arange(x.shape[1], device=x.device)
        for position in (lower, upper):
            where = position // folded.shape[2], channel, position % folded.shape[2]
            folded[where] -= shift
        dx.mul_(kernels.per_channel(factor, x))
        wants_weight, wants_bias = ctx.needs_input_grad[1:3]
        return dx, sum1 if wants_weight else None, sum0 if wants_bias else None, None


def _folded(x: Tensor) -> Tensor:
    """`(N, C, *)` as `(A, C, B)`: a view, where the memory format allows one."""
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d  # noqa: PLR2004
    if x.dim() in (4, 5) and x.is_contiguous(memory_format=last) and not x.is_contiguous():
        return x.movedim(1, -1).flatten(0, -2).unsqueeze(2)
    return x.unsqueeze(2) if x.dim() == 2 else x.flatten(2)  # noqa: PLR2004


def create(eps: float) -> Laplace:
    """The entry `laplace`."""
    return Laplace(eps)
