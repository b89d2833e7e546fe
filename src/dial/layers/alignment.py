"""The domain-alignment layer: statistics for each domain, one affine map for all."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef

from dial import references
from dial.errors import DialError
from dial.layers.context import DomainSpecific
from dial.references import Reference, Shared, Statistics, Tracking, per_channel, transformed, widen


class DomainAlignment(DomainSpecific):
    """Maps the activations of every domain onto one reference distribution, channel by channel.

    `y = weight * (x - b) / s + bias`. Location `b` and scale `s` belong to each domain: they come
    from its part of the batch in training, and from running statistics in eval mode. `weight` and
    `bias` are shared by all domains. Outside `use_domain` a batch belongs to the last domain.

    Shape: `(N, C, *)` to `(N, C, *)`, in the same memory format.

    Args:
        num_features: `C`.
        domains: the names of the domains, any number.
        reference: the reference distribution, by name or as an object.
        affine: whether there are a shared weight and bias.
        momentum: of the running statistics, as in `nn.BatchNorm2d`; None for a plain average.

    Raises:
        DialError: on construction, invalid domains or an unknown reference; on a batch, the wrong
            number of channels, or only one value per channel in training.

    >>> from dial import use_domain
    >>> layer = DomainAlignment(3, domains=("photo", "sketch"))
    >>> with use_domain(layer, {"photo": 4, "sketch": 2}):
    ...     y = layer(torch.randn(6, 3))
    >>> bool(y[:4].mean(0).abs().max() < 1e-4) and bool(y[4:].mean(0).abs().max() < 1e-4)
    True
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    location: Tensor | None
    spread: Tensor | None
    num_batches_tracked: Tensor
    prior_location: Tensor | None
    prior_spread: Tensor | None

    def __init__(
        self,
        num_features: int,
        *,
        domains: Sequence[str] = ("source", "target"),
        reference: str | Reference = "normal",
        affine: bool = True,
        momentum: float | None = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(domains)
        self.num_features = num_features
        self.reference = references.resolve(reference)
        self.momentum = momentum
        self.input_rank: int | None = None
        self.norm_eps = 1e-5  # of the BatchNorm it replaces, if any, and folds to
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.ones(num_features, **options)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features, **options)) if affine else None
        shape = len(self.domains), num_features
        self.register_buffer("location", torch.zeros(shape, **options))
        self.register_buffer("spread", self._initial_spread(torch.ones(shape, **options)))
        counts = torch.zeros(shape[0], dtype=torch.long, device=device)
        self.register_buffer("num_batches_tracked", counts)
        self.register_buffer("prior_location", None)
        self.register_buffer("prior_spread", None)
        self._inputs: dict[int, tuple[TensorWeakRef, int, int]] = {}

    @property
    def prior(self) -> Statistics | None:
        """The statistics of the pretrained BatchNorm that this layer replaces, if kept."""
        if self.prior_location is None or self.prior_spread is None:
            return None
        return Statistics(self.prior_location, self.prior_spread)

    def statistics(self, domain: str) -> Statistics | None:
        """Returns a domain's running statistics: views of the buffers."""
        return self._running(self.index_of(domain))

    def centered(self) -> list[Tensor]:
        """Returns `x - b`, before the division by `s`, for each domain of this training step.

        Empty after the backward pass, which frees the inputs, and with gradients disabled.
        """
        parts = []
        for reference, start, size in self._inputs.values():
            x = reference()
            if x is not None:
                part = widen(x.narrow(0, start, size))
                location, _ = self.reference.transform(self.reference.estimate(part), self.prior)
                parts.append(part - per_channel(location, part))
        return parts

    @torch.no_grad()
    def set_statistics(self, domain: str, statistics: Statistics) -> None:
        """Store a domain's statistics, for use in eval mode."""
        if self.location is None or self.spread is None:
            blank = torch.zeros_like(statistics.location, dtype=torch.float32)
            blank = blank.repeat(len(self.domains), 1)
            self.location, self.spread = blank, self._initial_spread(blank + 1)
        index = self.index_of(domain)
        self.location[index].copy_(statistics.location)
        self.spread[index].copy_(statistics.spread)

    def forward(self, x: Tensor) -> Tensor:
        """Align a batch `(N, C, *)` of the active domain or domains."""
        if x.dim() < 2 or x.shape[1] != self.num_features:  # noqa: PLR2004
            raise DialError(
                wanted=f"a batch of shape (N, {self.num_features}, ...) in {self.description()}",
                got=f"shape {tuple(x.shape)}",
                fix="give the layer as many features as its input has channels",
            )
        self.input_rank = x.dim()
        parts = self.parts(x)
        if not parts:
            return self._frozen(x, len(self.domains) - 1)
        if self.training or self.location is None:
            return self._aligned(x, parts)
        if len(parts) == 1:
            return self._frozen(x, parts[0][0])
        samples = x.split([size for _, size in parts])
        runs = zip(parts, samples, strict=True)
        return torch.cat([self._frozen(run, index) for (index, _), run in runs])

    def extra_repr(self) -> str:
        """The settings, as in `repr(nn.BatchNorm2d(...))`."""
        return (
            f"{self.num_features}, domains={self.domains}, reference={self.reference}, "
            f"affine={self.weight is not None}, momentum={self.momentum}"
        )

    def _frozen(self, x: Tensor, index: int) -> Tensor:
        running = self._running(index)
        if running is None:  # no statistics, and no samples to take them from
            return x
        location, square = self.reference.transform(running, self.prior)
        if square.dim() > 1:
            return transformed(widen(x), location, square, self.weight, self.bias).to(x.dtype)
        return F.batch_norm(x, location, square, self.weight, self.bias, eps=0.0)

    def _aligned(self, x: Tensor, parts: list[tuple[int, int]]) -> Tensor:
        positions = x[0, 0].numel()
        for index, size in parts:
            if size * positions < 2:  # noqa: PLR2004 - one value has no deviation
                raise DialError(
                    wanted=f"at least two values a channel to estimate statistics in "
                    f"{self.description()}, domain {self.domains[index]!r}",
                    got=f"{size} sample in a batch of shape {tuple(x.shape)}",
                    fix="use larger batches (drop a last one of a single sample), or eval mode",
                )
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._remember(x, parts)
        shared = Shared(self.weight, self.bias, self.prior)
        sizes, tracking = [], []
        for index, size in parts:
            sizes.append(size)
            # In eval mode a layer without statistics uses those of the batch, and keeps none.
            tracking.append(self._tracking(index) if self.training else Tracking(None, 0.0))
        return references.align(self.reference, x, sizes, shared, tracking)

    def _initial_spread(self, ones: Tensor) -> Tensor:
        return torch.stack([self.reference.initial_spread(row) for row in ones])

    def _running(self, index: int) -> Statistics | None:
        if self.location is None or self.spread is None:
            return None
        return Statistics(self.location[index], self.spread[index])

    def _tracking(self, index: int) -> Tracking:
        """Count a batch of a domain; returns its running statistics and the momentum."""
        self.num_batches_tracked[index] += 1
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked[index])
        return Tracking(self._running(index), momentum)

    def _remember(self, x: Tensor, parts: list[tuple[int, int]]) -> None:
        """Keep a weak reference to each domain's input, for penalties in the same step.

        The autograd graph keeps the input alive until the backward pass, and nothing longer.
        """
        start = 0
        for index, size in parts:
            self._inputs[index] = TensorWeakRef(x), start, size
            start += size

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_inputs": {}}

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # Allocate statistics that the stored layer has and this one lacks.
        for name in ("location", "spread", "prior_location", "prior_spread"):
            if getattr(self, name) is None and prefix + name in state_dict:
                stored = state_dict[prefix + name]
                setattr(
                    self, name, torch.empty_like(stored, device=self.num_batches_tracked.device)
                )
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class DomainAlignmentAct(DomainAlignment):
    """A DA-layer with the dropout and the activation that timm fuses into its norms."""

    def __init__(self, num_features: int, *, drop: nn.Module, act: nn.Module, **kwargs: Any):
        super().__init__(num_features, **kwargs)
        self.drop, self.act = drop, act

    def forward(self, x: Tensor) -> Tensor:
        """Align, drop, activate."""
        return self.act(self.drop(super().forward(x)))  # type: ignore[no-any-return]
