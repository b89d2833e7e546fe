"""References whose statistics are mean and variance: one fused pass for one or more domains."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dial import kernels
from dial.pooling import MomentPool, Pool
from dial.references._interface import Reference, Statistics, update


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

    def align(
        self,
        x: Tensor,
        *,
        weight: Tensor | None,
        bias: Tensor | None,
        prior: Statistics | None,
        running: Statistics | None,
        momentum: float,
    ) -> Tensor:
        """One domain's batch: fused, where this device has the kernels."""
        if not kernels.runs_fused(x):
            return super().align(
                x, weight=weight, bias=bias, prior=prior, running=running, momentum=momentum
            )
        return self.align_jointly(
            x,
            [len(x)],
            weight=weight,
            bias=bias,
            prior=prior,
            running=[running],
            momentum=[momentum],
        )

    def align_jointly(
        self,
        x: Tensor,
        sizes: Sequence[int],
        *,
        weight: Tensor | None,
        bias: Tensor | None,
        prior: Statistics | None,
        running: Sequence[Statistics | None],
        momentum: Sequence[float],
    ) -> Tensor:
        """Every domain's part written into one output, with no copy of the batch."""
        if not kernels.runs_fused(x):
            return super().align_jointly(
                x,
                sizes,
                weight=weight,
                bias=bias,
                prior=prior,
                running=running,
                momentum=momentum,
            )
        x = kernels.dense_like(x, x)
        batch = [Statistics(*kernels.moments(part)) for part in x.detach().split(list(sizes))]
        for own, part, size, rate in zip(running, batch, sizes, momentum, strict=True):
            update(own, self.tracked(part, size * x[0, 0].numel()), rate)
        transforms = [self.transform(part, prior) for part in batch]
        y: Tensor = _Aligned.apply(
            x, weight, bias, tuple(sizes), self.data_weight(prior), *sum(transforms, ())
        )
        return y


class _Aligned(torch.autograd.Function):
    """`weight (x - b) / s + bias` for consecutive runs of `x`, each with a `b` and `s**2`.

    `b` and `s` follow from the run itself. The gradient is batch normalisation's, with `w / n`
    in place of `1 / n`: with `h = (x - b) / s`, `G0 = sum g`, `G1 = sum g h`,

        dx = weight / s * (g - w/n (G0 + h G1))
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        sizes: tuple[int, ...],
        data_weight: float,
        *transforms: Tensor,
    ) -> Tensor:
        y = torch.empty_like(x)
        parts = zip(x.split(sizes), y.split(sizes), transforms[::2], transforms[1::2], strict=True)
        for source, target, location, square in parts:
            kernels.affine_(target, source, location, square, weight, bias)
        ctx.save_for_backward(x, weight, *transforms)
        ctx.sizes, ctx.data_weight = sizes, data_weight
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *transforms = ctx.saved_tensors
        g = kernels.dense_like(g, x)
        dx = torch.empty_like(x)
        total0, total1 = torch.zeros_like(transforms[0]), torch.zeros_like(transforms[0])
        parts = zip(
            g.split(ctx.sizes),
            x.split(ctx.sizes),
            dx.split(ctx.sizes),
            transforms[::2],
            transforms[1::2],
            strict=True,
        )
        for g_part, x_part, dx_part, location, square in parts:
            inverse = square.rsqrt()
            sum0, sum1 = kernels.gradient_sums(g_part, x_part, location, inverse)
            factor = inverse if weight is None else inverse * weight
            share = factor * (-ctx.data_weight / (x_part.numel() // x_part.shape[1]))
            kernels.affine_(dx_part, x_part, location, square, share * sum1, share * sum0)
            dx_part.addcmul_(g_part, kernels.per_channel(factor, x).to(x.dtype))
            total0, total1 = total0 + sum0, total1 + sum1
        wants_weight, wants_bias = ctx.needs_input_grad[1:3]
        return (
            dx,
            total1 if wants_weight else None,
            total0 if wants_bias else None,
            *[None] * (2 + len(transforms)),
        )
