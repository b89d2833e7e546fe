"""References whose statistics are mean and variance: one fused pass for one or more domains."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dial.references import _fused as kernels
from dial.references import _synchronization as synchronisation
from dial.references._accumulators import MomentPool, Pool
from dial.references.interface import Reference, Shared, Statistics, Tracking


class MomentReference(Reference):
    """A reference with the mean as location and the variance as spread.

    Its `transform` must be linear in the batch: `b = w mean + ...` and `s**2 = w var + ...`,
    where `w` is `data_weight`, and `d(s**2)/d(mean) = 2 w (mean - b)`.
    """

    eps: float

    def estimate(self, x: Tensor) -> Statistics:
        """Mean and biased variance of each channel of `(N, C, *)`."""
        var, mean = torch.var_mean(x, dim=[0, *range(2, x.dim())], correction=0)
        return Statistics(mean, var)

    def pool(self) -> Pool:
        """Exact, also over uneven batches."""
        return MomentPool()

    def from_moments(self, mean: Tensor, var: Tensor) -> Statistics:
        """The moments themselves."""
        return Statistics(mean, var)

    def data_weight(self, prior: Statistics | None) -> float:  # noqa: ARG002
        """How much the moments of the batch count against those of the prior."""
        return 1.0

    def tracked(self, statistics: Statistics, count: int) -> Statistics:
        """The unbiased variance, which torch's BatchNorm tracks too."""
        return Statistics(statistics.location, statistics.spread * (count / (count - 1)))

    def align(self, x: Tensor, shared: Shared, tracking: Tracking) -> Tensor:
        """One domain's batch: fused, where this device has the kernels."""
        if not kernels.runs_fused(x):
            return super().align(x, shared, tracking)
        return self.align_jointly(x, [len(x)], shared, [tracking])

    def align_jointly(
        self, x: Tensor, sizes: Sequence[int], shared: Shared, tracking: Sequence[Tracking]
    ) -> Tensor:
        """Every domain's part written into one output, with no copy of the batch."""
        if not kernels.runs_fused(x):
            return super().align_jointly(x, sizes, shared, tracking)
        dense = kernels.dense_like(x, x)
        weight, bias, prior = shared
        y: Tensor = _Aligned.apply(
            dense, weight, bias, tuple(sizes), self.data_weight(prior), self, prior, tracking
        )
        return y

    def align_part(
        self, y: Tensor, x: Tensor, shared: Shared, tracking: Tracking
    ) -> tuple[Tensor, Tensor, int]:
        """Write one domain's part into `y`; its location, inverse scale and values a channel.

        Where several processes share the batch, the statistics are those of all of it.
        """
        mean, var = kernels.moments(x)
        count = x.numel() // x.shape[1]
        if synchronisation.processes() > 1:
            mean, var, count = synchronisation.pooled_moments(mean, var, count)
        batch = Statistics(mean, var)
        tracking.update(self.tracked(batch, count))
        location, square = self.transform(batch, shared.prior)
        kernels.affine_(y, x, location, square, shared.weight, shared.bias)
        return location, square.rsqrt(), count


class _Aligned(torch.autograd.Function):
    """`weight (x - b) / s + bias` for consecutive runs of `x`, each with a `b` and `s`.

    `b` and `s` follow from the run itself. The gradient is batch normalisation's, with `w / n`
    in place of `1 / n`: with `h = (x - b) / s`, `G0 = sum g`, `G1 = sum g h`,

        dx = weight / s * (g - w/n (G0 + h G1))

    Where several processes share the batch, the sums and `n` are over all of them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        sizes: tuple[int, ...],
        data_weight: float,
        reference: MomentReference,
        prior: Statistics | None,
        tracking: Sequence[Tracking],
    ) -> Tensor:
        y = torch.empty_like(x)
        transforms: list[Tensor] = []
        ctx.counts = []
        for target, source, own in zip(y.split(sizes), x.split(sizes), tracking, strict=True):
            shared = Shared(weight, bias, prior)
            location, inverse, count = reference.align_part(target, source, shared, own)
            transforms += [location, inverse]
            ctx.counts.append(count)
        ctx.save_for_backward(x, weight, *transforms)
        ctx.sizes, ctx.data_weight = sizes, data_weight
        ctx.shared = synchronisation.processes() > 1
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *transforms = ctx.saved_tensors
        g = kernels.dense_like(g, x)
        if len(ctx.sizes) == 1 and not ctx.shared and x.dtype == transforms[0].dtype:
            return _Aligned._backward_of_one(ctx, g)
        dx = torch.empty_like(x)
        sums: list[tuple[Tensor, Tensor]] = []
        for dx_part, g_part, x_part, location, inverse, count in zip(
            *(tensor.split(ctx.sizes) for tensor in (dx, g, x)),
            transforms[::2],
            transforms[1::2],
            ctx.counts,
            strict=True,
        ):
            own = kernels.gradient_sums(g_part, x_part, location, inverse)
            sum0, sum1 = synchronisation.summed(*own) if ctx.shared else own
            share = -ctx.data_weight / count
            slope = sum1 * inverse
            kernels.affine_(dx_part, x_part, location, None, slope * share, sum0 * share)
            factor = inverse if weight is None else inverse * weight
            dx_part.add_(g_part).mul_(kernels.per_channel(factor, x))
            sums.append(own)
        total0, total1 = (reduce(torch.add, terms) for terms in zip(*sums, strict=True))
        wants_weight, wants_bias = ctx.needs_input_grad[1:3]
        grads = total1 if wants_weight else None, total0 if wants_bias else None
        return dx, *grads, *[None] * 5

    @staticmethod
    def _backward_of_one(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """The same in fewer passes, by batch normalisation's own kernel.

        With `s / sqrt(w)` for its scale and `weight / sqrt(w)` for its weight the kernel gives
        `weight / s * (g - G0/n - w/n h G1)`; what it takes too much of `G0` is added again.
        """
        x, weight, location, inverse = ctx.saved_tensors
        w, root = ctx.data_weight, math.sqrt(ctx.data_weight)
        own = torch.ones_like(inverse) if weight is None else weight
        dx, sum1, sum0 = kernels.batch_norm_backward(g, x, own / root, location, inverse * root)
        if w != 1:
            excess = sum0 * own * inverse * ((1 - w) / ctx.counts[0])
            dx.add_(kernels.per_channel(excess, x))
        wants_weight, wants_bias = ctx.needs_input_grad[1:3]
        grads = sum1 / root if wants_weight else None, sum0 if wants_bias else None
        return dx, *grads, *[None] * 5
