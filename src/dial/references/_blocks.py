"""Block-diagonal matrices over groups of channels, as their rows `(C, G)`.

Row `c` holds the entries of channel `c` with the `G` channels of its group. Where `G` does not
divide `C` the last group is smaller, and the entries that it lacks are 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def covariance(values: Tensor, group: int) -> Tensor:
    """Returns `values @ values.T` of centered values `(C, M)` within groups, not divided by `M`."""
    blocks = _group(values, group)
    with torch.autocast(values.device.type, enabled=False):
        return _to_rows(blocks @ blocks.mT, len(values))


def outer(values: Tensor, group: int) -> Tensor:
    """Returns the products of `(C,)` values with those of their group."""
    return covariance(values[:, None], group)


def diagonal(rows: Tensor) -> Tensor:
    """Returns the diagonal `(C,)` of a matrix."""
    channels = torch.arange(len(rows), device=rows.device)
    return rows[channels, channels % rows.shape[1]]


def from_diagonal(values: Tensor, group: int) -> Tensor:
    """Returns the diagonal matrix of `(C,)` values."""
    unit = torch.eye(group, dtype=values.dtype, device=values.device)
    return values[:, None] * unit.repeat(-(-len(values) // group), 1)[: len(values)]


def inverse_root(square: Tensor) -> Tensor:
    """Returns the inverse of the Cholesky factor `L` of a positive definite `L L^T`."""
    channels, group = square.shape
    unit = torch.eye(group, dtype=square.dtype, device=square.device)
    present = group - -channels % group  # of the last group; the others of it get variance 1
    blocks = torch.cat([square, unit[present:]]).view(-1, group, group)
    # Without its check for definiteness, which waits for the device. What is not finite stays so.
    factor, _ = torch.linalg.cholesky_ex(blocks)
    inverse = torch.linalg.solve_triangular(factor, unit.expand_as(factor), upper=False)
    return _to_rows(inverse, channels)


def multiply(rows: Tensor, values: Tensor) -> Tensor:
    """Returns the product of a matrix with `(C, M)` values."""
    channels, group = rows.shape
    with torch.autocast(values.device.type, enabled=False):
        return _to_rows(_group(rows, group) @ _group(values, group), channels)


def _group(values: Tensor, group: int) -> Tensor:
    """Returns `(C, M)` values as `(K, G, M)`, with zeros for channels that the last group lacks."""
    missing = -len(values) % group
    if missing:
        values = F.pad(values, (0, 0, 0, missing))
    return values.view(-1, group, values.shape[1])


def _to_rows(blocks: Tensor, channels: int) -> Tensor:
    return blocks.flatten(0, 1)[:channels]
