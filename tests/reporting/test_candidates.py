"""Which predictor was kept, in words."""

from typing import Any

import pytest

from dial.reporting.candidates import ABOUT, about_kept, describe, explain


def make(*scores: float, accuracies: tuple[float | None, ...] = ()) -> list[dict[str, Any]]:
    names = ("frozen", "classifier", "head")[: len(scores)]
    found: list[dict[str, Any]] = [
        {"name": name, "score": score} for name, score in zip(names, scores, strict=True)
    ]
    for each, accuracy in zip(found, accuracies, strict=False):
        each["target_accuracy"] = accuracy
    return found


def test_the_share_of_neighbors_decides_and_is_named() -> None:
    (why,) = explain(make(0.7, 0.8, 0.75), "classifier")
    assert why == (
        "“classifier” was kept because the largest share of nearest neighbors, of the source and "
        "of the target, agrees with its predictions: 80.0\u202f%, against 70.0\u202f% for "
        "“frozen” and 75.0\u202f% for “head”."
    )


@pytest.mark.parametrize(
    ("scores", "close"), [((0.7, 0.705), "less than a point apart"), ((0.7, 0.7), "Of equal ones")]
)
def test_close_scores_say_little(scores: tuple[float, float], close: str) -> None:
    kept = "classifier" if scores[1] > scores[0] else "frozen"
    _, said = explain(make(*scores), kept)
    assert close in said


@pytest.mark.parametrize(
    ("accuracies", "said"),
    [
        ((0.5, 0.6), "show no better one"),
        ((0.6, 0.6), "show no better one"),
        ((0.62, 0.6), "would have taken “frozen”: its true accuracy is 2.0 points higher"),
        ((None, None), ""),
        ((), ""),
    ],
)
def test_labels_are_for_comparison_alone(accuracies: tuple[float | None, ...], said: str) -> None:
    found = make(0.7, 0.8, accuracies=accuracies)
    sentences = explain(found, "classifier")
    assert len(sentences) == (2 if said else 1)
    assert said in sentences[-1]
    described = describe({"candidates": found, "predictor": "classifier"})
    assert described is not None
    assert described["scored"] == bool(said)


def test_equal_scores_are_called_equal() -> None:
    first, second = explain(make(0.7, 0.7, 0.6), "frozen")
    assert first.endswith("its predictions: 70.0\u202f%, as many as for “classifier”.")
    assert "against" not in first
    assert second == "Of equal ones the first is kept."


def test_every_predictor_of_a_method_is_described() -> None:
    found = make(0.1, 0.2, 0.3)
    assert {each["name"] for each in found} | {"start"} == set(ABOUT)
    result = {"candidates": found, "predictor": "head"}
    assert about_kept(result) == ABOUT["head"]
    assert about_kept(result | {"candidates": found[:1]}) == ""
    assert about_kept({}) == ""


def test_the_best_come_first_and_one_is_marked() -> None:
    described = describe({"candidates": make(0.7, 0.6, 0.8), "predictor": "head"})
    assert described is not None
    assert [row["name"] for row in described["rows"]] == ["head", "frozen", "classifier"]
    assert [row["is_kept"] for row in described["rows"]] == [True, False, False]


def test_no_reason_is_made_up_for_a_choice_by_another_rule() -> None:
    assert explain(make(0.7, 0.8), "frozen") == ["“frozen” was kept."]
    assert explain(make(0.7, 0.8), "unknown") == []


@pytest.mark.parametrize("result", [{}, {"candidates": None}, {"candidates": []}])
def test_without_a_choice_there_is_nothing_to_describe(result: dict[str, Any]) -> None:
    assert describe(result) is None
    assert describe({"candidates": make(0.7), "predictor": "frozen"}) is None
    assert describe({"candidates": make(0.7, 0.8)}) is None
