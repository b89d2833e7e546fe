"""Neighbors against loops, and how few images are handled."""

import math

import numpy as np
import torch

from dial.selection.neighborhood import agree, look_around


def nearest_by_loops(query: list[float], images: list[list[float]], count: int) -> list[int]:
    """The rows of the images with the largest cosine."""

    def cosine(one: list[float], other: list[float]) -> float:
        lengths = [math.sqrt(sum(a * a for a in row)) for row in (one, other)]
        return sum(a * b for a, b in zip(one, other, strict=True)) / (lengths[0] * lengths[1])

    return sorted(range(len(images)), key=lambda row: -cosine(query, images[row]))[:count]


def centered(rows: torch.Tensor, by: torch.Tensor) -> list[list[float]]:
    means = [sum(column) / len(by) for column in by.t().tolist()]
    return [[value - mean for value, mean in zip(row, means, strict=True)] for row in rows.tolist()]


def test_neighbors_by_loops() -> None:
    torch.manual_seed(0)
    source, target, asking = torch.randn(40, 3) + 5, torch.randn(12, 3) - 2, torch.randn(7, 3) + 5
    labels = torch.arange(40) % 4
    found = look_around(source, labels, target, asking=(asking, torch.zeros(7, dtype=torch.int64)))
    known = centered(source, source)
    for row, query in enumerate(centered(target, target)):
        expected = [int(labels[near]) for near in nearest_by_loops(query, known, 5)]
        assert found.of_target[row].tolist() == expected
    for row, query in enumerate(centered(asking, source)):
        expected = [int(labels[near]) for near in nearest_by_loops(query, known, 5)]
        assert found.of_source[row].tolist() == expected
    assert found.labels.tolist() == [0] * 7


def test_no_image_is_its_own_neighbor() -> None:
    torch.manual_seed(0)
    source, labels = torch.randn(30, 3), torch.arange(30) % 3
    found = look_around(source, labels, source)
    known = centered(source, source)
    for row, query in enumerate(known):
        near = [other for other in nearest_by_loops(query, known, 6) if other != row]
        assert found.of_source[row].tolist() == [int(labels[other]) for other in near[:5]]
        assert found.of_target[row, 0] == labels[row]  # a target image may be one of the source
    assert found.labels.tolist() == labels.tolist()


def test_no_more_neighbors_than_a_class_has_others() -> None:
    features = torch.randn(9, 2)
    found = look_around(features, torch.arange(9) // 3, torch.randn(4, 2))
    assert found.of_target.shape == (4, 2)
    assert found.of_source.shape == (9, 2)
    single = look_around(features, torch.arange(9), torch.randn(4, 2))
    assert single.of_target.shape == (4, 1)


def test_agreement() -> None:
    assert agree(np.array([[0, 0, 1], [2, 2, 2]]), np.array([1, 2])).tolist() == [1 / 3, 1.0]
