"""All speed of the references: the same results as `Reference.align`, in far fewer passes.

The arithmetic is done by torch's batch-norm kernels and gradients are in closed form. `align` is
the only entry. Tensors `x`, `y` and `g` (a gradient) are `(N, C, *)`, all others `(C,)`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from dial.references import _medians
from dial.references._synchronization import global_moments, global_sums, processes
from dial.references.anchored import Anchored
from dial.references.interface import (
    Reference,
    Shared,
    Statistics,
    Tracking,
    dense,
    per_channel,
    widen,
)
from dial.references.laplace import Laplace
from dial.references.normal import Normal

_backward = torch.ops.aten.native_batch_norm_backward.default  # of torch's batch normalization


def align(
    reference: Reference,
    x: Tensor,
    sizes: Sequence[int],
    shared: Shared,
    tracking: Sequence[Tracking],
) -> Tensor:
    """Returns `weight * (x - b) / s + bias`, with `b` and `s` from each domain's part of `x`.

    Args:
        reference: any reference; one without fused code here is computed by its `align`.
        x: the domains' samples, one domain after the other.
        sizes: how many samples each domain has.
        shared: the affine and the prior.
        tracking: the running statistics of each domain.

    Like `kept`, keeps `x` alive until the backward pass.
    """
    if type(reference) is Normal and len(sizes) == 1 and processes() == 1:
        return _batch_norm(reference.eps, _saved(x), shared, tracking[0])
    if type(reference) in (Normal, Anchored) and _has_kernels(x):
        y: Tensor = _Moments.apply(
            _saved(x), shared.weight, shared.bias, reference, shared.prior, sizes, tracking
        )
        return y
    x = kept(x)
    align_one: Callable[[Tensor, Shared, Tracking], Tensor] = reference.align
    if type(reference) is Normal and processes() == 1:
        align_one = partial(_batch_norm, reference.eps)
    elif type(reference) is Laplace and _has_kernels(x):
        align_one = partial(_laplace, reference.eps)
    if len(sizes) == 1:
        return align_one(x, shared, tracking[0])
    parts = zip(x.split(list(sizes)), tracking, strict=True)
    return torch.cat([align_one(part, shared, average) for part, average in parts])


def kept(x: Tensor) -> Tensor:
    """Returns `x`, which stays alive until the backward pass, whatever that saves."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return x
    y: Tensor = _Kept.apply(x)
    return y


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean and biased variance of a batch; not differentiable."""
    if _has_kernels(x):
        return _moments(dense(x, like=x))
    var, mean = torch.var_mean(widen(x).transpose(0, 1).flatten(1), dim=1, correction=0)
    return mean, var


def _saved(x: Tensor) -> Tensor:
    """Returns `x` in a dense layout, for a node that saves its input: that keeps `x` itself."""
    return x if dense(x, like=x) is x else dense(kept(x), like=x)


class _Kept(torch.autograd.Function):
    """The identity, and a reference to its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # noqa: ARG004
        return g


def _batch_norm(eps: float, x: Tensor, shared: Shared, tracking: Tracking) -> Tensor:
    """Normal, one domain: batch normalization itself."""
    mean, var = tracking.running or (None, None)
    return F.batch_norm(x, mean, var, shared.weight, shared.bias, True, tracking.momentum, eps)


class _Moments(torch.autograd.Function):
    """Normal and Anchored, one or more domains written into one output without a copy.

    The gradient is batch normalization's with `w / n` in place of `1 / n`, where `w` is the
    weight of the data: with `h = (x - b) / s`, `G0 = sum g` and `G1 = sum g h`,

        dx = weight / s * (g - w/n (G0 + h G1))

    If several processes share the batch, the sums and `n` are over all of them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        reference: Normal | Anchored,
        prior: Statistics | None,
        sizes: Sequence[int],
        tracking: Sequence[Tracking],
    ) -> Tensor:
        ctx.w = reference.weight if isinstance(reference, Anchored) and prior else 1.0
        ctx.sizes, ctx.counts, ctx.synchronized = list(sizes), [], processes() > 1
        y, dtype = torch.empty_like(x), torch.promote_types(x.dtype, torch.float32)
        locations, inverses = x.new_empty((2, len(ctx.sizes), x.shape[1]), dtype=dtype).unbind()
        for out, part, average, location, inverse in zip(
            y.split_with_sizes(ctx.sizes),
            x.split_with_sizes(ctx.sizes),
            tracking,
            locations.unbind(),
            inverses.unbind(),
            strict=True,
        ):
            count = part.numel() // part.shape[1]
            if isinstance(reference, Normal) and not ctx.synchronized:
                _batch_norm_(out, part, average, weight, bias, reference.eps, location, inverse)
            else:
                mean, var = _moments(part)
                if ctx.synchronized:
                    mean, var, count = global_moments(mean, var, count)
                batch = Statistics(mean, var)
                average.update(reference.tracked(batch, count))
                center, square = reference.transform(batch, prior)
                _affine_(out, part, center, square, weight, bias)
                location.copy_(center)
                torch.rsqrt(square, out=inverse)
            ctx.counts.append(count)
        ctx.save_for_backward(x, weight, locations, inverses)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, _, locations, _ = ctx.saved_tensors
        g = dense(g, like=x)
        if len(ctx.sizes) == 1 and not ctx.synchronized and x.dtype == locations.dtype:
            dx, weight_grad, bias_grad = _Moments._backward_one(ctx, g)
        else:
            dx, weight_grad, bias_grad = _Moments._backward_parts(ctx, g)
        wants_weight, wants_bias = ctx.needs_input_grad[1:3]
        return (
            dx,
            weight_grad if wants_weight else None,
            bias_grad if wants_bias else None,
            *[None] * 4,
        )

    @staticmethod
    def _backward_parts(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, locations, inverses = ctx.saved_tensors
        dx = torch.empty_like(x)
        factors = inverses if weight is None else inverses * weight
        sums: list[tuple[Tensor, ...]] = []
        for dx_part, g_part, x_part, location, inverse, square, factor, count in zip(
            *(tensor.split_with_sizes(ctx.sizes) for tensor in (dx, g, x)),
            *(rows.unbind() for rows in (locations, inverses, inverses.pow(-2), factors)),
            ctx.counts,
            strict=True,
        ):
            sums.append(_gradient_sums(g_part, x_part, location, inverse))
            sum0, sum1 = global_sums(*sums[-1]) if ctx.synchronized else sums[-1]
            share = -ctx.w / count  # of the sums, which themselves exceed half precision
            _affine_(dx_part, x_part, location, square, sum1 * share, sum0 * share)
            dx_part.add_(g_part).mul_(per_channel(factor, x))
        total0, total1 = (reduce(torch.add, terms) for terms in zip(*sums, strict=True))
        return dx, total1, total0

    @staticmethod
    def _backward_one(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same for one part in fewer passes, by batch normalization's own kernel.

        With `s / sqrt(w)` as scale and `weight / sqrt(w)` as weight the kernel returns
        `weight / s * (g - G0/n - w/n h G1)`; the excess in `G0` is added back.
        """
        x, weight, *transforms = ctx.saved_tensors
        location, inverse = (values[0] for values in transforms)
        root = math.sqrt(ctx.w)
        factor = torch.ones_like(inverse) if weight is None else weight
        dx, sum1, sum0 = _backward(
            g, x, factor / root, None, None, location, inverse * root, True, 0.0, [True] * 3
        )
        if ctx.w != 1:
            excess = sum0 * factor * inverse * ((1 - ctx.w) / ctx.counts[0])
            dx.add_(per_channel(excess, x))
        return dx, sum1 / root, sum0


def _laplace(eps: float, x: Tensor, shared: Shared, tracking: Tracking) -> Tensor:
    """Laplace, one domain."""
    wide = dense(widen(x), like=x)
    y, median, deviation = _Laplace.apply(wide, shared.weight, shared.bias, eps)
    tracking.update(Statistics(median, deviation))
    return y.to(x.dtype)  # type: ignore[no-any-return]


class _Laplace(torch.autograd.Function):
    """The aligned batch, its median and its deviation.

    With `h = (x - b) / s`, `G0 = sum g`, `G1 = sum g h`, and `e` the mean sign of `x - b` (zero
    unless values are tied with the median),

        dx = weight / s * (g - (sign(x - b) / n) G1 - (G0 - e G1) db/dx)

    where `db/dx` is a half at each of the two middle values and zero elsewhere.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        values, y = _medians.by_channel(x), torch.empty_like(x)
        lower, upper = _medians.middle(values, scratch=_medians.by_channel(y))
        median = (_medians.at(values, lower) + _medians.at(values, upper)) / 2
        distance = torch.sub(x, per_channel(median, x), out=y).abs_()
        count = x.numel() // x.shape[1]
        deviation = _medians.channel_sums(_medians.by_channel(distance)) / count
        square = deviation.square().clamp_min(eps)
        _affine_(y, x, median, square, weight, bias)
        ctx.save_for_backward(x, weight, lower, upper, median, deviation, square)
        ctx.mark_non_differentiable(median, deviation)
        return y, median, deviation

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, lower, upper, median, deviation, square = ctx.saved_tensors
        count = x.numel() // x.shape[1]
        g = dense(g, like=x)
        inverse = square.rsqrt()
        sum0, sum1 = _gradient_sums(g, x, median, inverse)
        factor = inverse if weight is None else inverse * weight
        # At the floor the scale is a constant.
        scale_sum = sum1 * (deviation.square() >= square)
        dx = (x - per_channel(median, x)).sign_()
        ties = _medians.channel_sums(_medians.by_channel(dx)) / count
        dx.mul_(per_channel(-scale_sum / count, x)).add_(g)
        shift = (sum0 - ties * scale_sum) / 2
        values = _medians.by_channel(dx)
        channel = torch.arange(x.shape[1], device=x.device)
        for position in (lower, upper):
            values[position // values.shape[2], channel, position % values.shape[2]] -= shift
        dx.mul_(per_channel(factor, x))
        wants_weight, wants_bias = ctx.needs_input_grad[1:3]
        return dx, sum1 if wants_weight else None, sum0 if wants_bias else None, None


def _has_kernels(x: Tensor) -> bool:
    """Whether the kernels below exist here; a compiler does better with plain operations."""
    return x.device.type in ("cpu", "cuda") and not torch.compiler.is_compiling()


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    mean, var = torch.batch_norm_update_stats(widen(x), None, None, 0.0)
    return mean, var


def _affine_(
    out: Tensor,
    x: Tensor,
    location: Tensor,
    square: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
) -> None:
    """`out = weight (x - location) / sqrt(square) + bias`."""
    none = location.new_empty(0)
    torch.native_batch_norm(
        x, weight, bias, location, square, False, 0.0, 0.0, out=(out, none, none)
    )


def _batch_norm_(
    out: Tensor,
    x: Tensor,
    tracking: Tracking,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    mean: Tensor,
    inverse: Tensor,
) -> None:
    """Batch normalization of `x` into `out`, and its mean and inverse deviation."""
    location, spread = tracking.running or (None, None)
    torch.native_batch_norm(
        x,
        weight,
        bias,
        location,
        spread,
        True,
        tracking.momentum,
        eps,
        out=(out, mean, inverse),
    )


def _gradient_sums(
    g: Tensor, x: Tensor, location: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns `sum g` and `sum g h` with `h = (x - location) * inverse`."""
    _, sum1, sum0 = _backward(
        g, x, None, None, None, location, inverse, True, 0.0, [False, True, True]
    )
    return sum0, sum1
