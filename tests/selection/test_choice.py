"""The choice among a run's predictors, by neighbors that agree."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from dial.methods import Candidate
from dial.selection import choice


def features(seed: int, *, shift: float = 0.0, spread: float = 0.3) -> tuple[Tensor, Tensor]:
    """Four classes of 15 images in 8 dimensions, and their labels."""
    centers = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(4).repeat(15)
    noise = torch.randn(60, 8, generator=torch.Generator().manual_seed(seed))
    return centers[labels] + spread * noise + shift, labels


def candidate(name: str, predicted: Tensor, space: tuple[Tensor, Tensor]) -> Candidate:
    logits = nn.functional.one_hot(predicted, 4).float()
    return Candidate(name, nn.Identity(), logits, target=space[1], source=space[0])


def by_loops(predicted: Tensor, labels: Tensor, spaces: list[tuple[Tensor, Tensor]]) -> float:
    """The score as its definition says, with scikit-learn's neighbors."""
    shares = []
    for source, target in spaces:
        a, b = ((x - x.mean(0)).numpy() for x in (source, target))
        near = NearestNeighbors(n_neighbors=6, metric="cosine").fit(b)
        across = NearestNeighbors(n_neighbors=5, metric="cosine").fit(a).kneighbors(b)[1]
        within = near.kneighbors(b, return_distance=False)
        agree = [labels[rows] == label for rows, label in zip(across, predicted, strict=True)]
        shares.append(np.mean([part.numpy() for part in agree]))
        same = [
            predicted[other] == predicted[row]
            for row, others in enumerate(within)
            for other in others[others != row]
        ]
        shares.append(np.mean(same))
    return float(np.mean(shares))


def test_the_better_predictor_wins_and_scores_are_as_defined() -> None:
    source, labels = features(2)
    target, truth = features(3, shift=1.0)
    other = features(4)[0], features(5, shift=-1.0)[0]
    wrong = truth.clone()
    wrong[::5] = (wrong[::5] + 1) % 4
    spaces = [(source, target), other]
    candidates = [candidate("wrong", wrong, spaces[0]), candidate("right", truth, spaces[1])]
    chosen, scores = choice.choose(candidates, labels)
    assert chosen.name == "right"
    wanted = [by_loops(predicted, labels, spaces) for predicted in (wrong, truth)]
    assert scores == pytest.approx(wanted)


def test_one_label_for_all_does_not_win() -> None:
    space = features(2)[0], features(3)[0]
    labels = features(2)[1]
    collapsed = candidate("collapsed", torch.zeros_like(labels), space)
    mostly = labels.clone()
    mostly[::6] = 0
    chosen, _ = choice.choose([collapsed, candidate("mostly right", mostly, space)], labels)
    assert chosen.name == "mostly right"


def test_classes_that_the_target_lacks_have_no_vote() -> None:
    source, labels = features(2, spread=0.9)
    target, truth = features(3, shift=1.0, spread=0.9)
    present = truth < 2
    # One predictor is right; the other spreads its labels over all classes, as the source does.
    spread = truth[present].clone()
    spread[::4] = 2 + spread[::4]
    space = source, target[present]
    chosen, _ = choice.choose(
        [candidate("spread", spread, space), candidate("right", truth[present], space)], labels
    )
    assert chosen.name == "right"


def test_equal_scores_keep_the_first() -> None:
    space = features(2)[0], features(3)[0]
    labels = features(2)[1]
    same = [candidate(name, labels, space) for name in ("frozen", "classifier")]
    assert choice.choose(same, labels)[0].name == "frozen"


def test_a_single_target_image_can_be_scored() -> None:
    source, labels = features(2)
    one = candidate("one", torch.tensor([2]), (source, features(3)[0][:1]))
    chosen, (score,) = choice.choose([one], labels)
    assert chosen is one
    assert 0 <= score <= 1
