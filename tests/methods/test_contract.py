"""Every registered method keeps the contract, and `check_method` finds what breaks it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from dial import DialError, convert, methods
from dial.backbones import Backbone
from dial.methods import Batch, Images, PlainMethod, Terms, Trainee, check_method, cross_entropy


@pytest.mark.parametrize("start", ["random", "probe"])
@pytest.mark.parametrize("name", methods.names())
def test_registered_methods_keep_the_contract(name: str, start: str) -> None:
    check_method(methods.create(name, {"start": start}))


@pytest.mark.parametrize(
    "settings",
    [
        {"centroids": True, "sparsity": 0.1, "passes": "joint", "reference": "laplace"},
        {"entropy": 0.0, "passes": "separate"},
        {"affine": "per-domain", "start": "probe"},
        {
            "start": "probe",
            "pseudo_labels": 0.3,
            "refits": 2,
            "head": True,
            "criterion": "information",
        },
        {"pseudo_labels": 0.3, "head": True, "entropy": 0.0, "criterion": "confusion"},
    ],
)
def test_settings_of_dial_keep_the_contract(settings: dict[str, object]) -> None:
    check_method(methods.create("dial", settings))


def test_there_is_no_way_to_labels_of_the_target() -> None:
    given = ("labelled", "known")  # labels that the user hands over for training; none otherwise
    assert Batch._fields == ("source", "labels", "target", "places", *given)
    fields = ("source", "source_labels", "target", "starts", "known", "prototypes", "pretrained")
    assert Images._fields == fields
    assert Batch._field_defaults["known"] is Images._field_defaults["known"] is None


def test_the_random_state_of_the_caller_is_kept() -> None:
    before = torch.get_rng_state()
    check_method("source_only")
    assert torch.equal(torch.get_rng_state(), before)


@dataclass(frozen=True, kw_only=True)
class Own(PlainMethod):
    """A sound method of one's own."""

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        source, _ = methods.both(trainee, batch)
        yield {"cross_entropy": cross_entropy(source, batch.labels)}


class NoTrainee(Own):
    def prepare(self, backbone: Backbone) -> Trainee:
        return backbone.network  # type: ignore[return-value]


class Vector(Own):
    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        yield {"loss": trainee(batch.source).logits[:, 0]}


class NotFinite(Own):
    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        yield {"loss": trainee(batch.source).logits.sum() / 0}


class Detached(Own):
    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        yield {"loss": trainee(batch.source).logits.sum().detach()}


class Unused(Own):
    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        yield {"loss": trainee(batch.source).features.sum()}


class NeedsTargetUnsaid(Own):
    needs_target = False


class NotPlain(Own):
    def prepare(self, backbone: Backbone) -> Trainee:
        convert(backbone.network)
        return Trainee(backbone)


class Training(Own):
    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        return trainee.network.train()


class Features(Own):
    def predictor(self, trainee: Trainee, images: Images) -> nn.Module:
        return trainee.network[:5].eval()


class UnadaptedNotPlain(Own):
    def unadapted(self, trainee: Trainee, source: object) -> nn.Module:
        return trainee


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (NoTrainee, "prepare: a dial.methods.Trainee"),
        (Vector, "terms: loss to be a finite scalar with a gradient"),
        (NotFinite, "terms: loss to be a finite scalar with a gradient, got tensor.*inf"),
        (Detached, "terms: loss to be a finite scalar with a gradient"),
        (Unused, "terms: a finite gradient of the parameter network.5.weight, got None"),
        (NeedsTargetUnsaid, "target images in the batch"),
        (NotPlain, "predictor: a plain network, without classes of dial, in '1'"),
        (Training, "predictor: a network in eval mode"),
        (Features, r"predictor: finite logits \(8, 3\), got \(8, 6\)"),
        (UnadaptedNotPlain, "unadapted: a plain network, without classes of dial, in ''"),
    ],
)
def test_what_breaks_the_contract_is_found(method: type[Own], message: str) -> None:
    check_method(Own())
    with pytest.raises(DialError, match=message):
        check_method(method())
