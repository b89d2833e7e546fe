"""What an adaptation method is: a network prepared, losses of a step, a predictor at the end."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.errors import DialError
from dial.layers.context import DomainSpecific
from dial.references import Reference

Terms = dict[str, Tensor]
"""Loss terms by name, each with its weight; the loss is their sum."""


class Output(NamedTuple):
    """Logits `(N, K)` and last hidden features `(N, D)` of a batch."""

    logits: Tensor
    features: Tensor


class Trainee(nn.Module):
    """All that is optimised: a backbone's network, and what a method needs beside it."""

    def __init__(
        self, backbone: Backbone, *, extra: nn.Module | None = None, frozen_norms: bool = False
    ) -> None:
        super().__init__()
        self.network, self.extra, self.frozen_norms = backbone.network, extra, frozen_norms
        self.backbone = backbone

    def forward(self, images: Tensor) -> Output:
        """Logits and features of a batch of one domain, or of several under `use_domain`."""
        with self.backbone.hidden_features() as features:
            logits = self.network(images)
        return Output(logits, features[0])

    def train(self, mode: bool = True) -> "Trainee":
        """Training mode, but for norms whose statistics stay what they were."""
        super().train(mode)
        if mode and self.frozen_norms:
            for module in self.network.modules():
                if isinstance(module, (_BatchNorm, DomainSpecific)):
                    module.eval()
        return self


class Images(NamedTuple):
    """All images of both domains, for what is done when training is over.

    The target's come in an order that tells nothing of their labels.
    """

    source: Iterable[Tensor]
    source_labels: Tensor
    target: Iterable[Tensor]


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """An adaptation method. Its fields are its settings; `--help` shows them."""

    needs_target: ClassVar[bool] = True
    """Whether training looks at the target's images."""
    adapts: ClassVar[bool] = True
    """Whether the target's images have any part in the predictor."""
    without: ClassVar[str] = ""
    """What `unadapted` is, in words."""

    start: str = "random"
    """The new classifier at the first step: random, or probe (fitted to the source's features)."""

    def __post_init__(self) -> None:
        check_choice("start", self.start, ("random", "probe"))

    @abstractmethod
    def prepare(self, backbone: Backbone) -> Trainee:
        """Make the network ready for training, in place."""

    @abstractmethod
    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        """The losses of one step; gradients of what is yielded are accumulated one by one.

        Args:
            trainee: called as a `Trainee` is.
            batch: of both domains.
            progress: from 0 at the first step to 1 at the last.
        """

    def reference_for(self, backbone: Backbone) -> str | Reference | None:  # noqa: ARG002
        """The reference distribution of its DA-layers; None where it has no such layers."""
        return None

    def unadapted(self, trainee: Trainee, source: Iterable[Tensor]) -> nn.Module | None:  # noqa: ARG002
        """A plain network to compare the predictor with, from before `finish`; most have none.

        The trainee is not changed; `source` are some of the source's images.
        """
        return None

    def finish(self, trainee: Trainee, images: Images) -> None:  # noqa: B027 - most do nothing
        """What is done once, after the last step."""

    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:  # noqa: ARG002
        """The target's predictor as a plain network in eval mode, once `finish` is done."""
        return trainee.network.eval()


@dataclass(frozen=True, kw_only=True)
class PlainMethod(Method):
    """A method on the network as it is, without DA-layers."""

    statistics: str = "auto"
    """BatchNorm while training: 'frozen', 'batch', or 'auto', which freezes pretrained ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("statistics", self.statistics, ("auto", "frozen", "batch"))

    def prepare(self, backbone: Backbone) -> Trainee:
        """The network as it is, and the method's own modules."""
        frozen = self.statistics == "frozen" or (self.statistics == "auto" and backbone.pretrained)
        return Trainee(backbone, extra=self.beside(backbone), frozen_norms=frozen)

    def beside(self, backbone: Backbone) -> nn.Module | None:  # noqa: ARG002
        """Modules beside the network that are trained with it."""
        return None


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Refuse a setting that is none of the choices."""
    if value not in tuple(choices):
        raise DialError(
            wanted=f"{name} to be one of {', '.join(map(str, choices))}",
            got=repr(value),
            fix="choose one of those",
        )


def linear_classifier(network: nn.Module, name: str) -> nn.Linear:
    """The linear layer that gives the logits, without what stands behind it.

    Raises:
        DialError: it is of another kind, or has no bias.
    """
    layer = network.get_submodule(name)
    layer = layer[0] if isinstance(layer, nn.Sequential) else layer
    if not isinstance(layer, nn.Linear) or layer.bias is None:
        raise DialError(
            wanted="a linear classifier with a bias, to fit it anew before or after training",
            got=f"a {type(layer).__name__}",
            fix="choose another backbone, or leave its classifier: --start random, and for dial "
            "--no-centroids",
        )
    return layer


def cross_entropy(output: Output, labels: Tensor) -> Tensor:
    """Of the source, averaged over its sub-batch, in float32."""
    return nn.functional.cross_entropy(output.logits.float(), labels)


def grown(progress: float, warmup: float) -> float:
    """The share of its value that a weight has come to, which grows evenly while `warmup` lasts."""
    return min(1.0, progress / warmup) if warmup else 1.0


def both(trainee: nn.Module, batch: Batch) -> tuple[Output, Output]:
    """One pass over source and target together, through a network that tells no domains apart."""
    assert batch.target is not None  # noqa: S101 - the method said that it needs one
    output = trainee(torch.cat([batch.source, batch.target]))
    sizes = [len(batch.source), len(batch.target)]
    (of_source, of_target), (source, target) = (part.split(sizes) for part in output)
    return Output(of_source, source), Output(of_target, target)
