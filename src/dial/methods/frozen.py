"""Frozen: a linear head for the target on the network as it is, without any training."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.methods._head import fit_to_network, make_candidate
from dial.methods.interface import Candidate, Images, Method, Terms, Trainee, linear_classifier


@dataclass(frozen=True, kw_only=True)
class Frozen(Method):
    """Labels propagated from the source to the target over pretrained features.

    Each domain's mean feature is removed. Labels travel over the graph of nearest neighbors of
    both domains (Zhou et al. 2004), and a ridge regression on the source and the surest target
    images becomes the classifier. A pass over the images is all that it takes.
    """

    trains = False
    takes_labelled = True

    def prepare(self, backbone: Backbone) -> Trainee:
        """Returns the unchanged network."""
        linear_classifier(backbone.network, backbone.classifier)  # fail before the slow part
        return Trainee(backbone, frozen_norms=True)

    def begin(self, trainee: Trainee, images: Images) -> dict[str, Candidate]:
        """Returns the network with the head as its classifier, for each target."""
        fitted = fit_to_network(trainee, images, trained=False)
        return {name: make_candidate("frozen", trainee, each) for name, each in fitted.items()}

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:  # noqa: ARG002
        """Yields nothing: there is no training."""
        yield from ()


create = Frozen
