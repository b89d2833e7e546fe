"""The head: its parts against scikit-learn and closed forms, and what it does to whole targets."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from dial.head import Head, fit_head
from dial.head import fitting as parts


def clusters(
    counts: list[int], *, seed: int, shift: float = 0.0, spread: float = 0.5
) -> tuple[Tensor, Tensor]:
    """Gaussian classes around fixed centers in 12 dimensions, `counts` images of each."""
    centers = torch.randn(len(counts), 12, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    noise = torch.randn(len(labels), 12, generator=torch.Generator().manual_seed(seed))
    return centers[labels] + spread * noise + shift, labels


def predict(head: Head, features: Tensor) -> Tensor:
    return (features @ head.weight.t() + head.bias).argmax(1)


def test_the_graph_joins_nearest_neighbors() -> None:
    features = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    cosine = (
        1
        - NearestNeighbors(n_neighbors=6, metric="cosine")
        .fit(features.numpy())
        .kneighbors_graph(mode="distance")
        .toarray()
    )
    _, near = NearestNeighbors(n_neighbors=6, metric="cosine").fit(features).kneighbors(features)
    weights = np.zeros((30, 30))
    for row, columns in enumerate(near):
        for column in columns[columns != row]:
            weights[row, column] = max(cosine[row, column], 1e-6) ** 3
    weights = weights + weights.T
    root = np.sqrt(weights.sum(1))
    found = parts._graph(features, 5).to_dense()
    np.testing.assert_allclose(found, weights / root[:, None] / root[None], atol=1e-5)


def test_propagation_nears_its_closed_form() -> None:
    graph = parts._graph(torch.randn(25, 6, generator=torch.Generator().manual_seed(0)), 5)
    scores = torch.rand(25, 3, generator=torch.Generator().manual_seed(1))
    system = np.eye(25) - 0.8 * graph.to_dense().double().numpy()
    wanted = 0.2 * np.linalg.solve(system, scores.double().numpy())
    np.testing.assert_allclose(parts._propagate(graph, scores), wanted, atol=2e-3)


def test_the_scale_gives_the_confidence() -> None:
    scores = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    scale = parts.scale_for_confidence(scores, 0.7)
    assert float((scale * scores).softmax(1).amax(1).mean()) == pytest.approx(0.7, abs=1e-4)


def test_a_shifted_target_is_classified() -> None:
    source, labels = clusters([30] * 5, seed=2)
    target, truth = clusters([20] * 5, seed=3, shift=2.0)
    plain = (
        LogisticRegression()
        .fit(source.numpy(), labels.numpy())
        .score(target.numpy(), truth.numpy())
    )
    head = fit_head([(source, target)], labels, num_classes=5)
    found = predict(head, target)
    assert float((found == truth).float().mean()) > max(0.95, plain + 0.2)
    assert float((head.labels == truth).float().mean()) > 0.95
    assert head.absent == ()
    unseen, unseen_truth = clusters([20] * 5, seed=4, shift=2.0)
    assert float((predict(head, unseen) == unseen_truth).float().mean()) > 0.95


def test_many_images_are_classified_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbors in cells, a graph in rows and sums over images: the same answers but for a few."""
    source, labels = clusters([200] * 6, seed=2)
    target, _ = clusters([150] * 6, seed=3, shift=0.5)
    exact = fit_head([(source, target)], labels, num_classes=int(labels.max()) + 1)
    monkeypatch.setattr(parts, "_MANY", 0)
    monkeypatch.setattr("dial.head.neighbors._EXACT", 0)
    fast = fit_head([(source, target)], labels, num_classes=int(labels.max()) + 1)
    assert (exact.labels == fast.labels).float().mean() > 0.98
    assert (exact.confidence - fast.confidence).abs().mean() < 0.01
    assert (exact.weight - fast.weight).norm() < 0.05 * exact.weight.norm()


def test_two_networks_know_more_than_one() -> None:
    source, labels = clusters([30] * 6, seed=2, spread=0.3)
    target, truth = clusters([30] * 6, seed=3, spread=0.3)
    noise = [torch.randn(180, 12, generator=torch.Generator().manual_seed(k)) for k in range(4)]
    spaces = [(source + noise[k], target + noise[k + 2]) for k in range(2)]
    alone, both = (
        float((fit_head(some, labels, num_classes=6).labels == truth).float().mean())
        for some in (spaces[1:], spaces)
    )
    assert both > alone + 0.02
    head = fit_head(spaces, labels, num_classes=6)
    fitted = (predict(head, spaces[1][1]) == head.labels).float().mean()
    assert float(fitted) > 0.8  # it is a classifier for the second


def test_offset_and_unit_of_the_features_do_not_matter() -> None:
    source, labels = clusters([30] * 4, seed=2, spread=1.0)
    target, _ = clusters([20] * 4, seed=3, spread=1.0)
    head = fit_head([(source, target)], labels, num_classes=4)
    moved = fit_head([(100 * source - 7, 100 * target + 30)], labels, num_classes=4)
    assert torch.equal(head.labels, moved.labels)
    logits, same = (
        (x @ h.weight.t() + h.bias) for x, h in ((target, head), (100 * target + 30, moved))
    )
    torch.testing.assert_close(logits, same, atol=0.05, rtol=0.01)


def test_classes_without_images_are_named_and_do_no_harm() -> None:
    source, labels = clusters([30] * 9, seed=2, spread=0.8)
    target, truth = clusters([25] * 3 + [0] * 6, seed=3, spread=0.8)
    plain = (
        LogisticRegression()
        .fit(source.numpy(), labels.numpy())
        .score(target.numpy(), truth.numpy())
    )
    head = fit_head([(source, target)], labels, num_classes=9)
    assert set(head.absent) <= {3, 4, 5, 6, 7, 8}
    assert len(head.absent) >= 5
    assert float((predict(head, target) == truth).float().mean()) > plain - 0.01


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_handful_of_target_images_is_enough_to_run(count: int) -> None:
    source, labels = clusters([4] * 3, seed=2)
    target, _ = clusters([4] * 3, seed=3)
    head = fit_head([(source, target[:count])], labels, num_classes=3)
    assert head.labels.shape == (count,)
    assert head.weight.isfinite().all()
    assert head.bias.isfinite().all()


def test_features_that_are_all_equal_give_finite_numbers() -> None:
    head = fit_head([(torch.zeros(6, 4), torch.ones(5, 4))], torch.arange(6) % 2, num_classes=2)
    assert head.weight.isfinite().all()
    assert head.bias.isfinite().all()


def test_a_guess_is_where_it_starts() -> None:
    source, labels = clusters([20] * 3, seed=2, spread=0.1)
    target, truth = clusters([20] * 3, seed=3, spread=0.1)
    turned = 5 * nn.functional.one_hot((truth + 1) % 3, 3).float()
    # Labels of the source outweigh a wrong guess only where graphs join the domains.
    far = fit_head([(source, target)], labels, num_classes=3, guess=-turned)
    assert float((far.labels == truth).float().mean()) > 0.9
