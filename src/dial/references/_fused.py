"""Per-channel arithmetic by torch's batch-norm kernels, which do in one pass what takes several.

All tensors `x` are `(N, C, *)`, all others `(C,)`. None of these is differentiable: they are
parts of autograd functions.
"""

import torch
from torch import Tensor

_aten = torch.ops.aten


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """`(C,)` values in a shape that broadcasts against `x`."""
    return values.view(1, -1, *[1] * (x.dim() - 2))


def widen(x: Tensor) -> Tensor:
    """`x` in float32 at least: statistics of half-precision activations need the digits."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def runs_fused(x: Tensor) -> bool:
    """Whether the functions below work here; a compiler does better with plain operations."""
    return x.device.type in ("cpu", "cuda") and not torch.compiler.is_compiling()


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance."""
    mean, var = _aten.batch_norm_update_stats(widen(x), None, None, 0.0)
    return mean, var


def affine_(
    out: Tensor,
    x: Tensor,
    location: Tensor,
    square: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
) -> None:
    """`out = weight (x - location) / sqrt(square) + bias`; without `square`, no division."""
    unused = location.new_empty(0), location.new_empty(0)
    if square is None:
        square = torch.ones_like(location)
    _aten.native_batch_norm.out(
        x,
        weight,
        bias,
        location,
        square,
        False,
        0.0,
        0.0,
        out=out,
        save_mean=unused[0],
        save_invstd=unused[1],
    )


def batch_norm_(
    out: Tensor,
    x: Tensor,
    running: tuple[Tensor, Tensor] | None,
    momentum: float,
    *,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Batch normalisation of `x` into `out`; the batch's mean and inverse deviation."""
    dtype = widen(x[:0]).dtype
    mean, inverse = (x.new_empty(x.shape[1], dtype=dtype) for _ in range(2))
    _aten.native_batch_norm.out(
        x,
        weight,
        bias,
        *(running or (None, None)),
        True,
        momentum,
        eps,
        out=out,
        save_mean=mean,
        save_invstd=inverse,
    )
    return mean, inverse


def gradient_sums(g: Tensor, x: Tensor, location: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """`sum g` and `sum g h` with `h = (x - location) * inverse`."""
    _, sum1, sum0 = _aten.native_batch_norm_backward(
        g, x, None, None, None, location, inverse, True, 0.0, [False, True, True]
    )
    return sum0, sum1


def batch_norm_backward(
    g: Tensor, x: Tensor, weight: Tensor, location: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation's `dx`, `sum g h` and `sum g`, as if `location` were the mean."""
    dx, sum1, sum0 = _aten.native_batch_norm_backward(
        g, x, weight, None, None, location, inverse, True, 0.0, [True, True, True]
    )
    return dx, sum1, sum0


def dense_like(g: Tensor, x: Tensor) -> Tensor:
    """A gradient in the memory format of `x`; autograd hands over views of any kind."""
    for layout in (torch.channels_last, torch.channels_last_3d):
        rank = 4 if layout is torch.channels_last else 5
        if x.dim() == rank and x.is_contiguous(memory_format=layout):
            return g.contiguous(memory_format=layout)
    return g.contiguous()
