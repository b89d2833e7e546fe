"""Pseudo-labels: what a method takes the classes of target images for, with weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dial.errors import DialError


class PseudoLabels(nn.Module):
    """The labels of target images by their places, with weights; saved with the checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: Tensor
        self.weights: Tensor
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("weights", torch.zeros(0))

    def renew(
        self, labels: Mapping[str, tuple[Tensor, Tensor]], starts: Mapping[str, int] | None = None
    ) -> None:
        """Replace all labels.

        Args:
            labels: of the first images of each target, and their weights.
            starts: the place of each target's first image; not needed for a single target.
        """
        starts = starts or dict.fromkeys(labels, 0)
        count = max(starts[domain] + len(known) for domain, (known, _) in labels.items())
        table = torch.zeros(count, dtype=torch.int64), torch.zeros(count)
        for domain, parts in labels.items():
            for whole, part in zip(table, parts, strict=True):
                whole[starts[domain] : starts[domain] + len(part)] = part
        self._replace(*table)

    def _replace(self, labels: Tensor, weights: Tensor) -> None:
        device = self.labels.device
        self.labels, self.weights = labels.to(device), weights.to(device)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = (state.get(f"{prefix}{name}") for name in ("labels", "weights"))
        if all(tensor is not None for tensor in saved):  # there may be another number of them
            self._replace(torch.zeros_like(state[f"{prefix}labels"]), state[f"{prefix}weights"])
        super()._load_from_state_dict(state, prefix, *rest)

    def cross_entropy(self, logits: Tensor, places: Tensor | None) -> Tensor:
        """Returns the weighted cross-entropy, averaged over the images `(m, K)` of a batch.

        Images without a label, beyond a target's sample that has labels, count as 0.
        """
        if places is None:
            raise DialError(
                wanted="the places of the batch's target images",
                got="none",
                fix="give Batch(..., places=...)",
            )
        known = places < len(self.labels)
        rows = places.where(known, torch.zeros_like(places))
        each = nn.functional.cross_entropy(logits.float(), self.labels[rows], reduction="none")
        return (each * self.weights[rows] * known).mean()
