"""The interface of a method: prepare a network, give a step's losses, return a predictor."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial.backbones import Backbone, classifier_layer
from dial.data.batches import Batch
from dial.errors import DialError
from dial.layers import DomainSpecific
from dial.references import Reference

Terms = dict[str, Tensor]
"""Loss terms by name, already weighted; the loss is their sum."""


class Output(NamedTuple):
    """Logits `(N, K)` and last hidden features `(N, D)` of a batch."""

    logits: Tensor
    features: Tensor


class Trainee(nn.Module):
    """All that is optimized: a backbone's network, and a method's own modules in `extra`."""

    def __init__(
        self, backbone: Backbone, *, extra: nn.Module | None = None, frozen_norms: bool = False
    ) -> None:
        super().__init__()
        self.network, self.extra, self.frozen_norms = backbone.network, extra, frozen_norms
        self.backbone = backbone

    def forward(self, images: Tensor) -> Output:
        """Returns logits and features of a batch of one domain, or of several in `use_domain`."""
        with self.backbone.hidden_features() as features:
            logits = self.network(images)
        return Output(logits, features[0])

    def train(self, mode: bool = True) -> "Trainee":
        """Set training mode; with `frozen_norms`, normalization layers stay in eval mode."""
        super().train(mode)
        if mode and self.frozen_norms:
            for module in self.network.modules():
                if isinstance(module, (_BatchNorm, DomainSpecific)):
                    module.eval()
        return self


class ByDomain(Iterable[Tensor]):
    """Batches of several domains by name; iterating yields all, one domain after the other."""

    def __init__(self, domains: Mapping[str, Iterable[Tensor]]) -> None:
        self.domains = dict(domains)

    def __iter__(self) -> Iterator[Tensor]:
        for batches in self.domains.values():
            yield from batches


class Images(NamedTuple):
    """All images of both sides in batches, for all that a method does between training steps.

    Where the domains have names, `source` and `target` are a `ByDomain`. The order of a target's
    images is independent of their labels. `starts` has the place of each target's first image, as
    `Batch.places` counts them. `known` are labels of target images that were given for training,
    in the order of the images, with -1 where there is none. Without a source, `prototypes` stand
    for it, if the model to start from has any; `pretrained` is the network that this model was
    trained from, if there was one.
    """

    source: Iterable[Tensor]
    source_labels: Tensor
    target: Iterable[Tensor]
    starts: Mapping[str, int] | None = None
    known: Mapping[str, Tensor] | None = None
    prototypes: "Prototypes | None" = None
    pretrained: Backbone | None = None

    @property
    def sources(self) -> dict[str, Iterable[Tensor]]:
        """The sources by the names of their domains."""
        return getattr(self.source, "domains", {"source": self.source})

    @property
    def targets(self) -> dict[str, Iterable[Tensor]]:
        """The targets by the names of their domains."""
        return getattr(self.target, "domains", {"target": self.target})

    @property
    def domain(self) -> str:
        """The name of the only target, or the last one."""
        return [*self.targets][-1]

    def given(self, target: str) -> Tensor | None:
        """Returns the known labels of a target's images, if there are any."""
        return (self.known or {}).get(target)


class Prototypes(NamedTuple):
    """What is kept of a source: the mean features of a few groups of similar images of each class.

    `centroids` `(J, D)` are the means by the network to start from, less the mean of the domain,
    and `labels` `(J,)` their classes. `pretrained` `(J, D)` are the same by the pretrained network
    that it was trained from, if there was one.
    """

    centroids: Tensor
    labels: Tensor
    pretrained: Tensor | None = None


class Candidate(NamedTuple):
    """A finished predictor to choose from, and what it makes of the images of `Images`.

    The network is plain and in eval mode. Logits `(M, K)` are the target's; features are the
    target's `(M, D)` and the source's `(N, D)`. `absent` are classes that the target seems to
    have no images of. `labels` `(N,)` are those of the source's features where these are not of
    the images of `Images` but prototypes of the classes.
    """

    name: str
    network: nn.Module
    logits: Tensor
    target: Tensor
    source: Tensor
    absent: tuple[int, ...] = ()
    labels: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """An adaptation method. Its dataclass fields are its settings, their doc strings the help."""

    needs_source: ClassVar[bool] = True
    """Whether training uses labelled source images; if not, it goes on from a finished model."""
    needs_target: ClassVar[bool] = True
    """Whether training uses the target's images."""
    takes_labelled: ClassVar[bool] = False
    """Whether labelled target images, if there are any, take part in training."""
    adapts: ClassVar[bool] = True
    """Whether the predictor depends on the target's images."""
    trains: ClassVar[bool] = True
    """Whether there are training steps."""
    refreshes: ClassVar[tuple[float, ...]] = ()
    """Parts of the training, from 0 to 1, at which `refresh` is called."""
    without: ClassVar[str] = ""
    """A description of the network that `unadapted` returns."""
    midway: ClassVar[str] = ""
    """What the scores of an epoch are of, if the finished network is quite another."""
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"start": ("random", "probe")}
    """The values that a setting can have, by its name."""

    start: str = "random"
    """Initial classifier: random, or probe (logistic regression on the source's features)."""

    def __post_init__(self) -> None:
        for name, values in self.choices.items():
            if getattr(self, name) not in values:
                wanted, got = f"{name} to be one of {', '.join(values)}", repr(getattr(self, name))
                raise DialError(wanted=wanted, got=got, fix="choose one of those")

    @abstractmethod
    def prepare(self, backbone: Backbone) -> Trainee:
        """Returns the trainee; changes the backbone's network in place."""

    def begin(self, trainee: Trainee, images: Images) -> dict[str, Candidate]:
        """Initialize the classifier before the first step, as `start` says.

        Args:
            trainee: from `prepare`.
            images: a fair sample of all domains.

        Returns:
            A predictor for each target that is finished before any training, if there is one.
        """
        if self.start == "probe":
            from dial.methods._probe import start_from_probe  # it needs this module

            start_from_probe(trainee, images)
        return {}

    def refresh(  # noqa: B027 - most do nothing
        self, trainee: Trainee, images: Images, first: Mapping[str, Candidate]
    ) -> None:
        """Renew what the losses are made of, such as pseudo-labels.

        `images` are those of `begin`, and `first` is what it returned.
        """

    @abstractmethod
    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """Yields the losses of one step; a backward pass follows each dictionary.

        Args:
            trainee: the `Trainee`, possibly wrapped; call it with images to get an `Output`.
            batch: source images, their labels, and target images if `needs_target`.
            progress: from 0 at the first step to 1 at the last.
        """

    def reference_for(self, backbone: Backbone) -> str | Reference | None:  # noqa: ARG002
        """Returns the reference distribution of the DA-layers; None if there are none."""
        return None

    def unadapted(self, trainee: Trainee, source: Iterable[Tensor]) -> nn.Module | None:  # noqa: ARG002
        """Returns a plain network to compare the predictor with, or None.

        Called before `finish` with some source images, of all sources and of each of several;
        must not change the trainee.
        """
        return None

    def finish(self, trainee: Trainee, images: Images) -> None:  # noqa: B027 - most do nothing
        """Change the trainee after the last step, for one target; `images.domain` names it.

        `candidates` or `predictor` follow, before the next target's turn.
        """

    def candidates(
        self,
        trainee: Trainee,  # noqa: ARG002
        images: Images,  # noqa: ARG002
        first: Candidate | None,  # noqa: ARG002
    ) -> list[Candidate]:
        """Returns a target's predictors to choose from without labels, beside that of `begin`.

        Called after `finish`, with the `images` of `begin`, those of one target, and the `first`
        that it returned for it. If there is nothing to choose from, `predictor` is called.
        """
        return []

    def figures(self, trainee: Trainee) -> dict[str, Any]:  # noqa: ARG002
        """Returns what result.json says about the trainee beyond its scores; after `finish`."""
        return {}

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:  # noqa: ARG002
        """Returns the target's predictor, a plain network in eval mode; called after `finish`."""
        return trainee.network.eval()


@dataclass(frozen=True, kw_only=True)
class PlainMethod(Method):
    """A method that adds losses to the network as it is, without DA-layers."""

    statistics: str = "auto"
    """BatchNorm statistics in training: batch, frozen, or auto (frozen if pretrained)."""
    choices = Method.choices | {"statistics": ("auto", "frozen", "batch")}

    def prepare(self, backbone: Backbone) -> Trainee:
        """Returns the unchanged network with the method's own modules beside it."""
        frozen = self.statistics == "frozen" or (self.statistics == "auto" and backbone.pretrained)
        return Trainee(backbone, extra=self.extra_modules(backbone), frozen_norms=frozen)

    def extra_modules(self, backbone: Backbone) -> nn.Module | None:  # noqa: ARG002
        """Returns modules to train beside the network, such as a discriminator, or None."""
        return None


def linear_classifier(network: nn.Module, name: str) -> nn.Linear:
    """Returns the linear layer of the classifier, without the DA-layers around it."""
    layer = classifier_layer(network, name)
    if not isinstance(layer, nn.Linear) or layer.bias is None:
        raise DialError(
            wanted="a linear classifier with a bias, to refit it before or after training",
            got=f"a {type(layer).__name__}",
            fix="choose another backbone, or keep its classifier: --start random, and for dial "
            "--no-head and --no-centroids",
        )
    return layer


def shares(domains: Sequence[str], images: Tensor) -> dict[str, int]:
    """Returns how many images of a batch each domain has: equal parts.

    >>> shares(("photo", "sketch"), torch.zeros(6, 3, 8, 8))
    {'photo': 3, 'sketch': 3}
    """
    return dict.fromkeys(domains, len(images) // len(domains))


def split_places(batch: Batch, targets: Mapping[str, int]) -> Sequence[Tensor | None]:
    """Returns the places of each target's images in a batch, if it has places."""
    if batch.places is None:
        return [None] * len(targets)
    places: Sequence[Tensor | None] = batch.places.split([*targets.values()])
    return places


def target_of(batch: Batch) -> Tensor:
    """Returns the target images of a batch, `(M, C, H, W)`; refuses a batch without any."""
    if batch.target is None:
        raise DialError(
            wanted="target images in the batch",
            got="none",
            fix="set needs_target = True in the method's class",
        )
    return batch.target


def both(trainee: nn.Module, batch: Batch) -> tuple[Output, Output]:
    """Returns the outputs of source and target, from one pass over the joint batch."""
    domains = [batch.source, target_of(batch)]
    output = trainee(torch.cat(domains))
    source, target = map(Output, *(part.split([*map(len, domains)]) for part in output))
    return source, target


def cross_entropy(output: Output, labels: Tensor) -> Tensor:
    """Returns the mean cross-entropy over a sub-batch, in float32."""
    return nn.functional.cross_entropy(output.logits.float(), labels)


def add_terms(terms: Terms, more: Terms) -> Terms:
    """Returns the terms of two parts of a step, those of one name added up."""
    return terms | {k: terms[k] + v if k in terms else v for k, v in more.items()}


def warmup_factor(progress: float, warmup: float, delay: float = 0.0) -> float:
    """Linear warm-up after a delay: the fraction of the final weight.

    >>> warmup_factor(0.1, 0.5), warmup_factor(0.7, 0.5), warmup_factor(0.0, 0.0)
    (0.2, 1.0, 1.0)
    >>> warmup_factor(0.2, 0.5, 0.25), warmup_factor(0.5, 0.5, 0.25), warmup_factor(0.25, 0.0, 0.25)
    (0.0, 0.5, 1.0)
    """
    if progress < delay:
        return 0.0
    return min(1.0, (progress - delay) / warmup) if warmup else 1.0
