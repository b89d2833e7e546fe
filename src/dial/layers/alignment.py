"""The domain-alignment layer: statistics for each domain, and as a rule one affine map for all."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef

from dial import references
from dial.errors import DialError
from dial.layers import mixing as mixings
from dial.layers.context import DomainSpecific
from dial.layers.mixing import Mixing, MixingLike
from dial.references import Reference, Shared, Statistics, Tracking, per_channel, transformed, widen

PER_DOMAIN = "per-domain"


class DomainAlignment(DomainSpecific):
    """Maps the activations of every domain onto one reference distribution, channel by channel.

    `y = weight * (x - b) / s + bias`. Location `b` and scale `s` belong to each domain: they come
    from its part of the batch in training, and from running statistics in eval mode. `weight` and
    `bias`, `(C,)`, are shared by all domains, or `(D, C)`, a row for each of the `D` domains.
    Outside `use_domain` a batch belongs to the last domain.

    With `mixing`, `b` and `s` come from a mixture of the statistics of all domains: of the batch
    for those that are in it, with gradients to all of them, and otherwise running ones. So joint
    passes and separate ones differ, unless a domain is mixed with the pretrained statistics only.
    Running statistics are of each domain alone; the mixture is made where they are used.

    Shape: `(N, C, *)` to `(N, C, *)`, in the same memory format.

    Args:
        num_features: `C`.
        domains: the names of the domains, any number.
        reference: the reference distribution, by name or as an object.
        affine: whether there are a shared weight and bias; "per-domain" for a weight and a bias of
            each domain, as in DSBN (Chang et al. 2019, <https://arxiv.org/abs/1906.03950>).
        momentum: of the running statistics, as in `nn.BatchNorm2d`; None for a plain average.
        mixing: a `Mixing`, a function of the domains' names that makes one, or "autodial"; None
            for statistics of each domain alone.

    Raises:
        DialError: on construction, invalid domains, affine or mixing, an unknown reference, or one
            without mean and variance to mix; on a batch, the wrong number of channels, or only
            one value per channel in training.

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
        affine: bool | str = True,
        momentum: float | None = 0.1,
        mixing: MixingLike | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(domains)
        self.num_features = num_features
        self.reference = references.resolve(reference)
        self.momentum = momentum
        self.mixing: Mixing | None = None
        if mixing is not None:
            self.mixing = mixings.resolve(mixing, self.domains, self.reference)
            self.mixing.to(device, dtype)
        self.input_rank: int | None = None
        self.norm_eps = 1e-5  # of the BatchNorm it replaces, if any, and folds to
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        shape = len(self.domains), num_features
        rows = shape if is_per_domain(affine) else shape[1:]
        self.weight = nn.Parameter(torch.ones(rows, **options)) if affine else None
        self.bias = nn.Parameter(torch.zeros(rows, **options)) if affine else None
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
        """Returns a domain's own running statistics: views of the buffers."""
        return self._running(self.index_of(domain))

    def mixed_statistics(self, domain: str) -> Statistics | None:
        """Returns what a domain is normalized by in eval mode, `(C,)` each, without gradient.

        The same as `statistics` without `mixing`.
        """
        return self._mixed_running(self.index_of(domain))

    def affine_of(self, domain: str) -> tuple[Tensor | None, Tensor | None]:
        """Returns the weight and the bias of a domain, `(C,)` each, or None where there is none."""
        return self._affine(self.index_of(domain))

    def centered(self) -> list[Tensor]:
        """Returns `x - b`, before the division by `s`, for each domain of this training step.

        Empty after the backward pass, which frees the inputs, and with gradients disabled.
        """
        parts = {}
        for index, (reference, start, size) in self._inputs.items():
            x = reference()
            if x is not None:
                parts[index] = widen(x.narrow(0, start, size))
        statistics = {index: self.reference.estimate(part) for index, part in parts.items()}
        centered = []
        for index, mixed in self._mix(statistics).items():
            location, _ = self.reference.transform(mixed, self.prior)
            centered.append(parts[index] - per_channel(location, parts[index]))
        return centered

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
        affine = PER_DOMAIN if self._is_per_domain() else self.weight is not None
        return (
            f"{self.num_features}, domains={self.domains}, reference={self.reference}, "
            f"affine={affine}, momentum={self.momentum}"
        )

    def _frozen(self, x: Tensor, index: int) -> Tensor:
        running = self._mixed_running(index)
        if running is None:  # no statistics, and no samples to take them from
            return x
        location, square = self.reference.transform(running, self.prior)
        if square.dim() > 1:
            return transformed(widen(x), location, square, *self._affine(index)).to(x.dtype)
        return F.batch_norm(x, location, square, *self._affine(index), eps=0.0)

    def _aligned(self, x: Tensor, parts: list[tuple[int, int]]) -> Tensor:
        positions = x.shape[2:].numel()
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
        # In eval mode a layer without statistics uses those of the batch, and keeps none.
        tracking = [
            self._tracking(index) if self.training else Tracking(None, 0.0) for index, _ in parts
        ]
        if self.mixing is not None:
            return self._aligned_mixed(references.kept(x), parts, tracking)
        sizes = [size for _, size in parts]
        if not self._is_per_domain():
            shared = Shared(self.weight, self.bias, self.prior)
            return references.align(self.reference, x, sizes, shared, tracking)
        x = references.kept(x)
        aligned = []
        for (index, size), run, average in zip(parts, x.split(sizes), tracking, strict=True):
            own = Shared(*self._affine(index), self.prior)
            aligned.append(references.align(self.reference, run, [size], own, [average]))
        return aligned[0] if len(aligned) == 1 else torch.cat(aligned)

    def _aligned_mixed(
        self, x: Tensor, parts: list[tuple[int, int]], tracking: list[Tracking]
    ) -> Tensor:
        runs = x.split([size for _, size in parts])
        statistics = {}
        for (index, _), run, average in zip(parts, runs, tracking, strict=True):
            of_run = self.reference.estimate(widen(run))
            of_run, count = references.synchronize(of_run, run.numel() // run.shape[1])
            average.update(self.reference.tracked(of_run, count))
            statistics[index] = of_run
        mixed, aligned = self._mix(statistics), []
        for (index, _), run in zip(parts, runs, strict=True):
            transform = self.reference.transform(mixed[index], self.prior)
            y = references.transformed(widen(run), *transform, *self._affine(index))
            aligned.append(y.to(x.dtype))
        return aligned[0] if len(aligned) == 1 else torch.cat(aligned)

    def _mix(self, statistics: dict[int, Statistics]) -> dict[int, Statistics]:
        """Returns mixtures of these domains' statistics and, for other domains, running ones."""
        if self.mixing is None:
            return statistics
        matrix, mixed = self.mixing(), {}
        for index, own in statistics.items():
            of_domains = [
                statistics.get(other) or self._running(other) or own
                for other in range(len(self.domains))
            ]
            mixed[index] = mixings.mix(matrix[index], [*of_domains, self.prior or own])
        return mixed

    def _mixed_running(self, index: int) -> Statistics | None:
        running = self._running(index)
        if self.mixing is None or running is None:
            return running
        with torch.no_grad():
            return self._mix({index: running})[index]

    def _is_per_domain(self) -> bool:
        return self.weight is not None and self.weight.dim() > 1

    def _affine(self, index: int) -> tuple[Tensor | None, Tensor | None]:
        if self.weight is None or self.bias is None or not self._is_per_domain():
            return self.weight, self.bias
        return self.weight[index], self.bias[index]

    def _initial_spread(self, ones: Tensor) -> Tensor:
        return torch.stack([self.reference.initial_spread(row) for row in ones])

    def _running(self, index: int) -> Statistics | None:
        location, spread = self.location, self.spread
        if location is None or spread is None:
            return None
        return Statistics(location[index], spread[index])

    def _tracking(self, index: int) -> Tracking:
        """Count a batch of a domain; returns its running statistics and the momentum."""
        self.num_batches_tracked[index].add_(1)
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked[index])
        return Tracking(self._running(index), momentum)

    def _remember(self, x: Tensor, parts: list[tuple[int, int]]) -> None:
        """Keep a weak reference to each domain's input, for penalties in the same step.

        `align` and `kept` keep the input alive until the backward pass, and nothing longer.
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


def is_per_domain(affine: bool | str) -> bool:
    """Whether each domain has an affine of its own.

    Raises:
        DialError: a word that means nothing here.
    """
    if isinstance(affine, str) and affine not in ("shared", PER_DOMAIN):
        raise DialError(
            wanted="affine to be shared (by all domains) or per-domain",
            got=repr(affine),
            fix="choose one of those",
        )
    return affine == PER_DOMAIN


class DomainAlignmentAct(DomainAlignment):
    """A DA-layer with the dropout and the activation that timm fuses into its norms."""

    def __init__(self, num_features: int, *, drop: nn.Module, act: nn.Module, **kwargs: Any):
        super().__init__(num_features, **kwargs)
        self.drop, self.act = drop, act

    def forward(self, x: Tensor) -> Tensor:
        """Align, drop, activate."""
        return self.act(self.drop(super().forward(x)))  # type: ignore[no-any-return]
