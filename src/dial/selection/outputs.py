"""Outputs of a run's predictors on both domains, by which the run is judged without labels."""

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial import files
from dial.backbones import classifier_layer, hidden_features
from dial.data.evaluation import EvaluationBatches
from dial.data.prepare import PreparedDomain, PreparedSource, PreparedTarget
from dial.data.transforms import Preprocessing
from dial.errors import DialError
from dial.files.records import require_arrays
from dial.layers import to_network, use_domain_if_any
from dial.references import MomentAccumulator
from dial.selection.neighborhood import Neighborhood, look_around

NAME = "outputs.safetensors"
VERSION = 1
SAMPLE = 500
"""Images of a domain over which moments are taken by default."""
SOURCE, TARGET = 1000, 2000
"""At most so many training images of the source and target images with features are kept."""
_POSITIONS = 64

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


class Moments(NamedTuple):
    """Mean and (biased) variance of each channel of a layer's input, `(C,)` each."""

    mean: Tensor
    var: Tensor


@dataclass(frozen=True, eq=False)
class Observation:
    """The outputs of a network for N images."""

    logits: Floats
    """`(N, K)`, of all images."""
    features: Floats
    """`(M, D)`, the input of the classifier, of the first M images."""
    labels: Labels | None = None
    """`(M,)`, of source images only; labels of the target never get here."""
    moments: dict[str, Moments] = field(default_factory=dict)
    """By the names of normalization layers; empty if they were not measured."""

    def with_features(self) -> "Observation":
        """Returns the M images that have features."""
        count = len(self.features)
        return self if count == len(self.logits) else replace(self, logits=self.logits[:count])


@dataclass(frozen=True, eq=False)
class LabelledObservation(Observation):
    """The outputs of a network for source images, with their labels."""

    labels: Labels

    def correct(self) -> npt.NDArray[np.bool_]:
        """Returns `(M,)`, whether each image is predicted as it is labelled."""
        correct: npt.NDArray[np.bool_] = self.logits.argmax(1) == self.labels
        return correct


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of the target's predictor on the target and of the source's on the source.

    A method with a single predictor uses it for both. Images are in the order of their content.
    """

    target: Observation
    """Logits of all images, features of up to 2,000."""
    training: LabelledObservation | None
    """Up to 1,000 source images of the training set; None for a run without a source."""
    held_out: LabelledObservation | None
    """The source images held out of training; None if there are none."""
    unadapted: Observation | None = None
    """The target through the predictor without adaptation, if the method has one. It is not
    saved, because it would double the file."""
    before: Neighborhood | None = None
    """Neighbors of the target images that have features, by the network that training began from;
    None if that was a random one."""
    first: Labels | None = None
    """`(M,)`, the classes by the predictor from before training, if there was one."""

    def with_features(self) -> "Outputs":
        """Returns the outputs without the target images that have no features."""
        unadapted = None if self.unadapted is None else self.unadapted.with_features()
        return replace(self, target=self.target.with_features(), unadapted=unadapted)

    def require_held_out(self) -> LabelledObservation:
        """Returns the held-out source images; refuses outputs without any."""
        if self.held_out is None:
            raise DialError(
                wanted="source images that were held out of training",
                got="none in the run's outputs",
                fix="train with a larger --holdout or more images",
            )
        return self.held_out


def find_neighbors(outputs: Outputs) -> Labels:
    """Returns the labels of the source images nearest to each target image that has features.

    They are those by the network that training began from, if it is a pretrained one, and
    otherwise those by the features of these outputs.
    """
    if outputs.before is not None:
        return outputs.before.of_target
    training: Any = outputs.training  # it is there, or nothing could be compared
    parts = training.features, training.labels, outputs.target.features
    return look_around(*map(torch.from_numpy, parts)).of_target


def save(folder: Path, outputs: Outputs, *, classes: Sequence[str]) -> None:
    """Write a run's outputs into its folder: of the target, the images that have features."""
    cut = outputs.with_features()
    parts = {"target": cut.target, "training": cut.training, "held_out": cut.held_out}
    tensors = {
        f"{part}.{name}": torch.tensor(getattr(observation, name))
        for part, observation in parts.items()
        for name in ("logits", "features", "labels")
        if getattr(observation, name, None) is not None
    }
    if cut.before is not None:
        tensors |= {f"before.{name}": torch.tensor(v) for name, v in vars(cut.before).items()}
    if cut.first is not None:
        tensors["first.labels"] = torch.tensor(cut.first)
    about = {"version": VERSION, "classes": classes, "images": "in the order of their content"}
    files.save_tensors(folder / NAME, tensors, about=about)


def load(folder: Path) -> Outputs:
    """Returns the outputs saved in a run's folder.

    Raises:
        DialError: no such file, a damaged one, or one of another version.
    """
    path, wanted = folder / NAME, "the outputs of a finished run"
    fix = "finish the run, or repeat it with this version of dial in another folder"
    _, tensors = files.load_tensors(path, wanted=wanted, version=VERSION, fix=fix)
    parts: dict[str, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        part, _, array = name.partition(".")
        parts.setdefault(part, {})[array] = tensor.numpy()
    try:
        found = Outputs(
            target=Observation(**parts["target"]),
            training=LabelledObservation(**parts["training"]) if "training" in parts else None,
            held_out=LabelledObservation(**parts["held_out"]) if "held_out" in parts else None,
            before=Neighborhood(**parts["before"]) if "before" in parts else None,
            first=parts["first"]["labels"] if "first" in parts else None,
        )
        _require_shapes(found)
    except (KeyError, TypeError, ValueError) as error:
        got = f"others ({type(error).__name__}: {error})"
        raise DialError(wanted=f"{wanted} in {path}", got=got, fix=fix) from error
    return found


def _require_shapes(outputs: Outputs) -> None:
    """Refuse arrays that do not fit each other, with a ValueError."""
    shapes = {"logits": "NK float", "features": "ND float", "labels": "N K"}
    target, around, sizes = outputs.target, outputs.before, dict[str, int]()
    for part in (target, outputs.training, outputs.held_out):
        if part is not None:
            arrays = {name: getattr(part, name) for name in shapes}
            require_arrays(arrays, shapes, sizes)
            del sizes["N"]
    require_arrays({"first": outputs.first}, {"first": "F K"}, sizes)
    if around is not None:
        own = {"of_target": "AT K", "of_source": "SU K", "labels": "S K"}
        require_arrays(vars(around), own, sizes)
    if max(sizes.get("F", 0), sizes.get("A", 0)) > len(target.logits):
        raise ValueError("more target images than there are outputs of")


@torch.no_grad()
def observe(
    network: nn.Module,
    batches: Iterable[Tensor],
    *,
    classifier: str,
    kept: int = sys.maxsize,
    measured: int = SAMPLE,
) -> Observation:
    """Send images through a network, which is put into eval mode and otherwise unchanged.

    Args:
        network: a network; to measure moments, one without DA-layers, like a method's predictor.
        batches: batches of images.
        classifier: the name of the layer whose input is the features.
        kept: the largest number of images of which features are kept.
        measured: the largest number of images over which moments are taken.

    Returns the logits of all images, the features of the first ones, and the moments of what
    reaches each BatchNorm layer (at about 64 positions of an image), or the classifier of a network
    without any.
    """
    network.eval()
    logits, features, count = [], [], 0
    norms: dict[str, nn.Module]
    norms = {name: m for name, m in network.named_modules() if isinstance(m, _BatchNorm)}
    norms = norms or {classifier: classifier_layer(network, classifier)}
    accumulators = {name: MomentAccumulator() for name in norms}

    def measure(_: nn.Module, inputs: tuple[Tensor, ...], *, to: MomentAccumulator) -> None:
        x = inputs[0][: max(0, measured - count)]
        if x.dim() > 2:  # noqa: PLR2004 - a sample of positions is as good as all of them
            places = x.flatten(2)
            x = places[:, :, :: places.shape[2] // _POSITIONS | 1]
        to.add(x)

    with ExitStack() as hooks, hidden_features(network, classifier) as hidden:
        for name, norm in norms.items():
            hook = partial(measure, to=accumulators[name])
            hooks.enter_context(norm.register_forward_pre_hook(hook))
        for images in batches:
            logits.append(network(to_network(images, network)).float().cpu())
            features.append(hidden.pop()[: max(0, kept - count)].float().cpu())
            count += len(images)
    return Observation(
        logits=torch.cat(logits).numpy(),
        features=torch.cat(features).numpy(),
        moments={name: Moments(*a.result()) for name, a in accumulators.items() if a.count},
    )


class Unadapted(NamedTuple):
    """The network without adaptation, and of several sources that of each."""

    network: nn.Module | None = None
    by_source: Mapping[str, nn.Module] = MappingProxyType({})


@dataclass(frozen=True)
class Observer:
    """Sends the images of the sources and of one target through the networks of a run."""

    sources: Mapping[str, PreparedSource]
    """By the names of their domains in the DA-layers."""
    held_out: Mapping[str, PreparedSource]
    """Parts of the sources that are held out of training, if they are large enough."""
    domain: str
    """The target's name in the DA-layers."""
    target: PreparedTarget
    preprocessing: Preprocessing
    classifier: str
    """The name of the layer whose input is the features."""
    quiet: bool = True

    def look(self, predictor: nn.Module, unadapted: Unadapted) -> Outputs:
        """Returns the outputs of finished networks; each image passes each network once.

        Source images go through the network without adaptation, if there is one: that is where a
        method with DA-layers sends them. Of several sources each goes through its own.
        """
        network, by_source = unadapted
        of_source, scored = network or predictor, self.target.scored
        training = self.observe_sources(of_source) if self.sources else None
        held_out = self._observe_source(of_source, self.held_out) if self.held_out else None
        if by_source:
            most = SOURCE // len(self.sources)
            each = self._observe_each(by_source, self.sources, most=most)
            training = replace(each, moments=training.moments if training else {})
            held_out = self._observe_each(by_source, self.held_out) if self.held_out else None
        return Outputs(
            target=self._observe(predictor, [scored], kept=TARGET),
            training=training,
            held_out=held_out,
            unadapted=self._observe(network, [scored], kept=TARGET) if network else None,
        )

    def observe_sources(self, network: nn.Module, most: int = SOURCE) -> LabelledObservation:
        """Returns the outputs of a network for some training images of the sources."""
        return self._observe_source(network, self.sources, most=most, measured=SAMPLE)

    def observe_target(self, network: nn.Module) -> Observation:
        """Returns the outputs of a network for the target images that features are kept of."""
        return self._observe(network, [self.target.scored], most=TARGET)

    def midway(self, network: nn.Module) -> Outputs:
        """Returns the outputs of a network in training, with its running statistics."""
        networks = dict.fromkeys(self.sources, network)
        training = self._observe_each(networks, self.sources, most=SOURCE // len(self.sources))
        held_out = self._observe_each(networks, self.held_out) if self.held_out else None
        with use_domain_if_any(network, self.domain):
            target = self._observe(network, [self.target.scored], most=TARGET, measured=0)
        return Outputs(target=target, training=training, held_out=held_out)

    def _observe_each(
        self,
        networks: Mapping[str, nn.Module],
        sources: Mapping[str, PreparedSource],
        *,
        most: int | None = None,
    ) -> LabelledObservation:
        """Returns the outputs of all sources, each by its network or with its statistics."""
        parts = []
        for domain, source in sources.items():
            with use_domain_if_any(networks[domain], domain):
                parts.append(self._observe_source(networks[domain], {domain: source}, most=most))
        return LabelledObservation(
            np.concatenate([part.logits for part in parts]),
            np.concatenate([part.features for part in parts]),
            np.concatenate([part.labels for part in parts]),
        )

    def _observe_source(
        self,
        network: nn.Module,
        sources: Mapping[str, PreparedSource],
        *,
        most: int | None = None,
        measured: int = 0,
    ) -> LabelledObservation:
        domains = [*sources.values()]
        seen = self._observe(network, domains, most=most, measured=measured)
        share = None if most is None else most // len(domains)
        labels = [each.labels.indices[each.pixels.order[:share]] for each in domains]
        return LabelledObservation(seen.logits, seen.features, np.concatenate(labels), seen.moments)

    def batches(
        self, domain: PreparedDomain, most: int | None = None, *, quiet: bool = False
    ) -> EvaluationBatches:
        """Returns images of a domain in the order of their content, with a bar of progress."""
        return EvaluationBatches(
            domain.pixels,
            preprocessing=self.preprocessing,
            by_content=True,
            most=most,
            title="" if quiet or self.quiet else f"{domain.name} through the network",
        )

    def _observe(
        self,
        network: nn.Module,
        domains: Sequence[PreparedDomain],
        *,
        most: int | None = None,
        kept: int = sys.maxsize,
        measured: int = SAMPLE,
    ) -> Observation:
        """Several domains share `most` evenly; then moments are taken over all of them."""
        share = None if most is None else most // len(domains)
        # A bar runs during training.
        batches = [self.batches(domain, share, quiet=not measured) for domain in domains]
        return observe(
            network,
            itertools.chain.from_iterable(batches),
            classifier=self.classifier,
            kept=kept,
            measured=measured * len(domains),
        )
