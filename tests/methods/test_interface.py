"""Methods by name or as objects, their settings, and the pieces they are written with."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from dial import DialError, methods
from dial.methods import Batch, Method, PlainMethod, Terms
from dial.methods.dial import Dial

from .small import backbone, batch


@dataclass(frozen=True, kw_only=True)
class Own(PlainMethod):
    """Somebody else's method."""

    weight: float = 0.5

    def terms(self, trainee: nn.Module, batch: Batch, progress: float) -> Iterator[Terms]:
        source, _ = methods.both(trainee, batch)
        yield {"cross_entropy": self.weight * methods.cross_entropy(source, batch.labels)}


def test_every_method_is_described_and_made_by_name() -> None:
    assert set(methods.names()) == {
        "adabn", "adabn_coral", "autodial", "cdan", "dan", "ddc", "dial", "entropy_only", "frozen",
        "mcc", "recalibrate", "revgrad", "shot", "source_free", "source_only",
    }  # fmt: skip
    assert all(methods.describe().values())
    assert methods.kind("dial") is Dial
    assert methods.create("dial", {"entropy": 0.7, "warmup": None}) == Dial(entropy=0.7)
    with pytest.raises(DialError, match=r"settings of the method ddc .* got entropy"):
        methods.create("ddc", {"entropy": 0.1})


def test_a_wrong_name_gets_the_nearest_one() -> None:
    with pytest.raises(
        DialError, match=r"\(start, statistics, weight\), got wieght.*mean weight\? If"
    ):
        methods.create("ddc", {"wieght": 0.1})
    with pytest.raises(DialError, match="fix: leave those out, or choose the method that has them"):
        methods.create("ddc", {"clamp": 0.1})
    with pytest.raises(DialError, match=r"one of the methods adabn.*got 'dail'.*did you mean dial"):
        methods.create("dail")


def test_an_object_is_taken_as_it_is() -> None:
    own = Own(weight=0.1)
    assert methods.create(own) is own
    assert methods.create(own, {"entropy": None}) is own
    assert methods.kind(own) is Own
    assert methods.create(own, {"weight": 0.2}) == Own(weight=0.2)
    assert own.weight == 0.1
    with pytest.raises(DialError, match=r"method Own \(start, statistics, weight\), got entropy"):
        methods.create(own, {"entropy": 0.1})


@pytest.mark.parametrize(("entry", "got"), [(Own, "a class"), (3, "3 without prepare")])
def test_other_objects_are_refused(entry: Method, got: str) -> None:
    with pytest.raises(DialError, match=rf"the methods of dial.methods.Method, got .*{got}"):
        methods.create(entry)


def test_a_batch_without_a_target_is_refused_where_one_is_needed() -> None:
    sample = batch()
    assert methods.target_of(sample) is sample.target
    trainee = Own().prepare(backbone())
    with pytest.raises(DialError, match=r"target images in the batch, got none.*needs_target"):
        methods.both(trainee, sample._replace(target=None))


def test_both_is_one_pass_split_by_domain() -> None:
    trainee, sample = Own().prepare(backbone()).eval(), batch()
    source, target = methods.both(trainee, sample)
    for output, images in ((source, sample.source), (target, methods.target_of(sample))):
        torch.testing.assert_close(output.logits, trainee.network(images))
        torch.testing.assert_close(output.features, trainee.network[:5](images))


def test_begin_leaves_a_random_classifier_alone() -> None:
    trainee = Own().prepare(backbone())
    before = {name: value.clone() for name, value in trainee.state_dict().items()}
    images = torch.randn(8, 3, 8, 8).split(4)
    assert Own().begin(trainee, methods.Images(images, torch.arange(8) % 4, images)) == {}
    assert all(torch.equal(value, before[name]) for name, value in trainee.state_dict().items())
    with pytest.raises(DialError, match="start to be one of random, probe"):
        Own(start="warm")
