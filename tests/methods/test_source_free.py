"""The method `source_free`: the loss, the classifier that is kept, and prototypes."""

import math
from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from dial import methods
from dial.data.batches import Batch
from dial.head import fit_head
from dial.layers import DomainAlignment
from dial.methods import ByDomain, Images, Output, Prototypes, Trainee
from dial.methods.source_free import guess_prototypes
from dial.selection import choice
from dial.training.engine import build_optimizer
from dial.training.settings import Settings

from .small import backbone

EMPTY = torch.zeros(0, dtype=torch.int64)


def images_of(target: torch.Tensor, **more: object) -> Images:
    return Images(ByDomain({}), EMPTY, target.split(8), **more)  # type: ignore[arg-type]


def test_the_loss_is_information_and_cross_entropy_on_pseudo_labels() -> None:
    target = torch.randn(24, 3, 8, 8)
    method = methods.create("source_free", {"information": 0.7, "pseudo_labels": 0.4})
    trainee = method.prepare(backbone())
    first = method.begin(trainee, images_of(target))["target"]
    trainee.train()
    places = torch.tensor([3, 0, 7, 12, 20, 5, 9, 11])
    batch = Batch(target[:0], EMPTY, target[places], places)
    (terms,) = method.terms(trainee, batch, 0.5)
    with torch.no_grad():
        logits = trainee(target[places]).logits.double()
    p = logits.softmax(1)
    entropy = -(p * p.log()).sum(1).mean()
    with torch.no_grad():  # the mean prediction: of all images before training, then of batches too
        before = first.logits.double().softmax(1).mean(0)
    weight = 8 / (8 + 10 * 4)  # a batch, beside ten images of each class
    marginal = (1 - weight) * before + weight * p.mean(0)
    information = entropy + (p.mean(0) * marginal.log()).sum()
    torch.testing.assert_close(
        terms["information"].double(), 0.7 * information, atol=1e-5, rtol=1e-4
    )
    extra = trainee.extra
    labels, weights = extra.labels[places], extra.weights[places]  # type: ignore[union-attr, index]
    each = -p.log()[torch.arange(8), labels] * weights
    torch.testing.assert_close(
        terms["pseudo_labels"].double(), 0.4 * each.mean(), atol=1e-5, rtol=1e-4
    )


def test_labelled_images_add_their_cross_entropy() -> None:
    target, labelled = torch.randn(8, 3, 8, 8), torch.randn(4, 3, 8, 8)
    known = torch.tensor([1, 0, 3, 2])
    method = methods.create("source_free")
    trainee = method.prepare(backbone())
    batch = Batch(target[:0], EMPTY, target, torch.arange(8), labelled, known)
    trainee.eval()  # fixed statistics: logits of an image do not depend on the others
    (terms,) = method.terms(trainee, batch, 0.0)
    with torch.no_grad():
        logs = trainee(labelled).logits.double().log_softmax(1)
    wanted = -logs[torch.arange(4), known].mean()
    torch.testing.assert_close(terms["labelled"].double(), wanted, atol=1e-5, rtol=1e-4)


def test_the_classifier_is_kept_and_the_prior_is_the_networks_own() -> None:
    record = backbone()
    norm = record.network[1]  # type: ignore[index]
    mean = norm.running_mean.clone()
    method = methods.create("source_free")
    trainee = method.prepare(record)
    optimizer = build_optimizer(trainee, Settings())
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    layers = dict(trainee.network.named_modules())
    classifier = layers[record.classifier]
    assert not any(id(p) in trained for p in classifier.parameters())
    assert len(trained) > 1
    aligned = [m for m in layers.values() if isinstance(m, DomainAlignment)]
    torch.testing.assert_close(aligned[0].prior_location, mean)


def test_prototypes_are_centroids_by_the_networks_predictions() -> None:
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    logits = torch.tensor([[50.0, 0.0, -50.0], [50.0, 0.0, -50.0], [0.0, 50.0, -50.0]])
    weight = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 4.0]])
    centroids = guess_prototypes(Output(logits, features), weight)
    mean = features.mean(0)
    torch.testing.assert_close(centroids[0], torch.tensor([2.0, 0.0]) - mean)
    torch.testing.assert_close(centroids[1], torch.tensor([0.0, 2.0]) - mean)
    torch.testing.assert_close(centroids[2] / centroids[2].norm(), torch.tensor([0.0, 1.0]))


def test_a_network_that_predicts_one_class_does_not_agree_with_itself() -> None:
    target = torch.cat([torch.randn(20, 3, 8, 8) + shift for shift in (-2.0, 2.0)])
    record = backbone()
    record.network[5].bias.data[0] = 50.0  # type: ignore[index, union-attr]
    method = methods.create("source_free")
    first = method.begin(method.prepare(record), images_of(target))["target"]
    assert first.logits.argmax(1).unique().tolist() == [0]
    assert first.labels is not None
    _, (score,) = choice.choose([first], first.labels)
    assert score < 0.9


def test_given_prototypes_take_the_place_of_the_source() -> None:
    target = torch.randn(12, 3, 8, 8)
    method = methods.create("source_free")
    trainee = method.prepare(backbone())
    count, size = trainee.backbone.num_classes, trainee.backbone.num_features
    labels = torch.arange(2 * (count - 1)) // 2  # two of each class, none of the last one
    given = Prototypes(torch.randn(len(labels), size), labels)
    first = method.begin(trainee, images_of(target, prototypes=given))["target"]
    assert first.labels is not None
    assert torch.equal(first.labels, labels)
    torch.testing.assert_close(first.source, given.centroids)
    with torch.no_grad():
        torch.testing.assert_close(first.network(target), first.logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("remembers", [True, False])
def test_the_pretrained_network_says_what_is_alike_first(remembers: bool) -> None:
    torch.manual_seed(0)
    target, method = torch.randn(20, 3, 8, 8), methods.create("source_free")
    trainee, pretrained = method.prepare(backbone()), backbone()
    for parameter in pretrained.network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    count, size = trainee.backbone.num_classes, trainee.backbone.num_features
    labels = torch.arange(3 * count) // 3
    shape = len(labels), size
    known = Prototypes(torch.randn(shape), labels, torch.randn(shape)) if remembers else None
    images = images_of(target, pretrained=pretrained, prototypes=known)
    first = method.begin(trainee, images)["target"]
    with torch.no_grad():
        before = Trainee(pretrained).eval()(target).features
        own = trainee.eval()(target)
    torch.testing.assert_close(first.target, before, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(first.logits, own.logits, atol=1e-5, rtol=1e-4)  # its own
    if known is not None:
        assert torch.equal(first.source, known.pretrained)  # type: ignore[arg-type]
        # The first pseudo-labels are those of a head that the network itself has no part in.
        alone = fit_head([(first.source, before)], labels, num_classes=count)
        assert torch.equal(trainee.extra.labels, alone.labels)  # type: ignore[union-attr]
    trained = method.candidates(trainee, images, first)[0]
    assert len(trained.source) == len(first.source)
    torch.testing.assert_close(trained.target, own.features, atol=1e-5, rtol=1e-4)


def test_a_network_without_batch_norm_is_trained_as_it_is() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    from dial.backbones import Backbone

    method = methods.create("source_free")
    record = Backbone.of(network, image_size=2, sources=(), append_after=(), insert_before=())
    target = torch.randn(16, 3, 2, 2)
    trainee = method.prepare(record)
    first = method.begin(trainee, images_of(target))
    (terms,) = method.terms(trainee.train(), Batch(target[:0], EMPTY, target, torch.arange(16)), 0)
    assert math.isfinite(float(terms["information"].detach()))
    method.finish(trainee, images_of(target))
    names = [each.name for each in method.candidates(trainee, images_of(target), first["target"])]
    assert names == ["classifier", "head"]


@pytest.mark.parametrize("knows", ["pretrained", "model"])
def test_the_training_starts_from_the_network_that_neighbors_agree_with(knows: str) -> None:
    torch.manual_seed(0)
    labels = torch.arange(40) % 4
    shades = torch.tensor([-3.0, -1.0, 1.0, 3.0])[labels]
    target = shades[:, None, None, None] + 0.1 * torch.randn(40, 3, 8, 8)
    given, pretrained = backbone(), backbone()
    blind = given if knows == "pretrained" else pretrained
    for parameter in blind.network[0].parameters():  # type: ignore[index]
        parameter.data.zero_()  # all images look the same
    method, domains = methods.create("source_free"), {"sources": (), "targets": ("target",)}
    trainee = method.prepare(replace(given, append_after=(), **domains))  # type: ignore[arg-type]
    with torch.no_grad():
        seen = [Trainee(each).eval()(target).features for each in (given, pretrained)]
    probe = LogisticRegression(C=100).fit(seen[0].numpy(), labels.numpy())
    classifier = trainee.network[5]  # type: ignore[index]
    classifier.weight.data = torch.from_numpy(probe.coef_).float()
    classifier.bias.data = torch.from_numpy(probe.intercept_).float()
    centroids = [torch.stack([x[labels == k].mean(0) for k in range(4)]) - x.mean(0) for x in seen]
    known = Prototypes(centroids[0], torch.arange(4), centroids[1])
    method.begin(trainee, images_of(target, pretrained=pretrained, prototypes=known))
    assert method.figures(trainee) == {"trained_from": knows}
    trainee.eval()
    with torch.no_grad():
        output = trainee(target)
    torch.testing.assert_close(output.features, seen[knows == "pretrained"], atol=1e-4, rtol=1e-4)
    assert (output.logits.argmax(1) == labels).float().mean() > 0.9
    assert not classifier.weight.requires_grad
