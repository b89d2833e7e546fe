"""Classes that seem to be absent or confused: what is said, and when nothing is."""

import itertools
from collections import Counter

import numpy as np
import pytest

from dial.reporting.classes import confused, missing

CLASSES = ("mug", "<b>pen", "cup")


def repeat(*counts: int) -> np.ndarray:
    """Returns predictions of each class so many times."""
    return np.repeat(np.arange(len(counts)), counts)


@pytest.mark.parametrize(
    ("source", "counts", "absent", "said"),
    [
        ((10, 10, 10), (10, 10, 10), (), []),
        (
            (10, 10, 10),
            (0, 20, 10),
            ("mug",),
            ["The target seems to have no images of: mug."],
        ),
        ((10, 10, 10), (40, 20, 0), ["cup", "<b>pen"], ["no images of: cup, <b>pen."]),
        ((10, 10, 10), (40, 0, 20), (), ["No image is predicted as: <b>pen."]),
        ((10, 10, 10), (90, 29, 1), (), ["source suggests: cup (1, not about 40)."]),
        ((10, 10, 10), (80, 30, 10), (), []),  # a quarter is not less than a quarter
        ((98, 1, 1), (100, 0, 0), (), []),  # of a rare class none may be there by chance
        ((10, 10, 10), (7, 7, 0), (), []),
        ((0, 0, 0), (40, 1, 0), (), ["No image is predicted as: cup."]),  # without a source
        (
            (50, 30, 20),
            (0, 99, 1),
            ("<b>pen",),
            ["no images of: <b>pen.", "predicted as: mug.", "suggests: cup (1, not about 20)."],
        ),
    ],
)
def test_classes_that_are_missing(
    source: tuple[int, ...], counts: tuple[int, ...], absent: list[str], said: list[str]
) -> None:
    found = missing(CLASSES, np.array(source), repeat(*counts), absent=absent)
    assert len(found) == len(said)
    assert all(sentence.endswith(end) for sentence, end in zip(found, said, strict=True))


def test_of_very_many_classes_only_the_first_are_named() -> None:
    names = tuple(f"class {i}" for i in range(300))
    counts = np.zeros(300, dtype=np.int64)
    counts[0] = 9000
    (sentence,) = missing(names, np.full(300, 5), repeat(*counts))
    assert sentence.startswith("No image is predicted as: class 1, class 2, ")
    assert sentence.endswith("class 12 and 287 more.")


def test_one_class_has_nothing_to_be_told_apart_from() -> None:
    assert missing(("mug",), np.array([40]), repeat(40)) == []


def say(*groups: tuple[int, int, float, float, int]) -> list[str]:
    """Returns what is said of groups of images: class, runner-up, both probabilities, count."""
    columns = zip(*itertools.chain(*([group[:4]] * group[4] for group in groups)), strict=True)
    predicted, second, first_confidence, second_confidence = (np.array([*c]) for c in columns)
    return confused(
        CLASSES,
        predicted,
        first_confidence,
        runner_up=second,
        runner_up_confidence=second_confidence,
    )


def test_a_pair_that_stands_out_is_named_with_its_counts() -> None:
    near = (0, 2, 0.5, 0.4, 12)
    sure = (0, 1, 0.9, 0.05, 28)
    text = "Images predicted as mug are often nearly predicted as cup (12 of 40)"
    assert say(near, sure) == [f"{text}."]
    back = (2, 0, 0.45, 0.4, 6)
    assert say(near, sure, back) == [f"{text}, and the other way round (6 of 6)."]
    other = (1, 2, 0.3, 0.29, 7)
    assert say(near, sure, back, other) == [
        f"{text}, and the other way round (6 of 6).",
        "Images predicted as <b>pen are often nearly predicted as cup (7 of 7).",
    ]


@pytest.mark.parametrize(
    "groups",
    [
        [(0, 2, 0.9, 0.05, 40)],  # certain
        [(0, 2, 0.5, 0.4, 4)],  # too few
        [(0, 2, 0.5, 0.4, 5), (0, 1, 0.9, 0.1, 46)],  # too small a share
        [(0, 2, 0.6, 0.35, 40)],  # not near
        [(0, 2, 0.15, 0.05, 40)],  # near only because no class is likely
    ],
)
def test_of_other_pairs_nothing_is_said(groups: list[tuple[int, int, float, float, int]]) -> None:
    assert say(*groups) == []


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_a_plain_loop_and_at_most_five_are_told(seed: int) -> None:
    generator = np.random.default_rng(seed)
    names = tuple("abcdefg")
    predicted = generator.integers(0, 7, 400)
    second = (predicted + generator.integers(1, 7, 400)) % 7
    first_confidence = generator.uniform(0.3, 0.6, 400)
    second_confidence = first_confidence * generator.uniform(0.2, 1, 400)
    near: Counter[str] = Counter()
    total: Counter[str] = Counter()
    rows = zip(predicted, second, first_confidence, second_confidence, strict=True)
    for a, b, p, q in rows:
        total[names[a]] += 1
        if p - q <= 0.2 and q >= p / 2:
            near[f"{names[a]} {names[b]}"] += 1
    wanted = {}
    for pair, count in near.items():
        a, b = pair.split()
        if count >= 5 and count / total[a] >= 0.1:
            wanted[pair] = f"({count} of {total[a]})"
    found = confused(
        names,
        predicted,
        first_confidence,
        runner_up=second,
        runner_up_confidence=second_confidence,
    )
    pairs = {frozenset(pair.split()) for pair in wanted}
    assert len(found) == min(5, len(pairs))
    told = set()
    for sentence in found:
        words = sentence.replace(",", "").split()
        a, b = words[3], words[9]
        told.add(frozenset((a, b)))
        assert wanted[f"{a} {b}"] in sentence
        assert ("the other way round" in sentence) == (f"{b} {a}" in wanted)
        assert wanted.get(f"{b} {a}", "") in sentence
    assert len(told) == len(found)
    most = max(near[pair] for pair in wanted)
    assert f"({most} of " in found[0]
