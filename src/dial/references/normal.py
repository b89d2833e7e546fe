"""The standard normal distribution: maximum likelihood, or MAP with a prior on the variance."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from dial.references import _fused as kernels
from dial.references import _synchronization as synchronisation
from dial.references._moments import MomentReference
from dial.references.interface import Shared, Statistics, Tracking


@dataclass(frozen=True)
class Normal(MomentReference):
    """`y = (x - mean) / sqrt(var + eps)`, the paper's BN (tiny `eps`) and Epsilon (`eps=1`).

    Epsilon is the most probable transformation when the variance has an Inverse-Gamma prior
    with `alpha = n/2 - 1` and `beta = eps n/2`: the posterior's mode is `(var + eps) / 2`, whose
    constant factor the shared affine absorbs.
    """

    eps: float = 1e-5

    def transform(self, statistics: Statistics, prior: Statistics | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The mean, and `var + eps`."""
        return statistics.location, statistics.spread + self.eps

    def align(self, x: Tensor, shared: Shared, tracking: Tracking) -> Tensor:
        """Batch normalisation, by torch's own kernel where no other process shares the batch."""
        if synchronisation.processes() > 1:
            return super().align(x, shared, tracking)
        mean, var = tracking.running or (None, None)
        weight, bias, _ = shared
        return F.batch_norm(x, mean, var, weight, bias, True, tracking.momentum, self.eps)

    def align_part(
        self, y: Tensor, x: Tensor, shared: Shared, tracking: Tracking
    ) -> tuple[Tensor, Tensor, int]:
        """One domain's part of a joint batch, by the same kernel."""
        if synchronisation.processes() > 1:
            return super().align_part(y, x, shared, tracking)
        weight, bias, _ = shared
        mean, inverse = kernels.batch_norm_(y, x, *tracking, weight=weight, bias=bias, eps=self.eps)
        return mean, inverse, x.numel() // x.shape[1]


def create(eps: float) -> Normal:
    """The entry `normal`."""
    return Normal(eps)
