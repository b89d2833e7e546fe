"""Source only: its loss, and what becomes of the statistics of BatchNorm."""

import pytest
import torch

from dial import methods

from .small import backbone, batch, cross_entropy, numpy, terms


def test_the_loss_is_the_cross_entropy_of_the_source() -> None:
    values, trainee, sample = terms("source_only")
    logits = numpy(trainee.train()(sample.source).logits)
    expected = cross_entropy(logits, sample.labels)
    assert float(values["cross_entropy"]) == pytest.approx(expected, rel=1e-5)
    assert set(values) == {"cross_entropy"}


@pytest.mark.parametrize(
    ("statistics", "pretrained", "moves"),
    [
        ("auto", True, False),
        ("auto", False, True),
        ("batch", True, True),
        ("frozen", False, False),
    ],
)
def test_pretrained_networks_keep_their_statistics_by_default(
    statistics: str, pretrained: bool, moves: bool
) -> None:
    made = backbone()
    object.__setattr__(made, "pretrained", pretrained)
    method = methods.create("source_only", {"statistics": statistics})
    trainee = method.prepare(made).train()
    before = made.network[1].running_mean.clone()
    list(method.terms(trainee, batch(), 0.0))
    assert (not torch.equal(before, made.network[1].running_mean)) == moves
