"""Which of a run's predictors was kept, and why, in words."""

from collections.abc import Sequence
from typing import Any

_CLOSE = 0.01  # difference of scores that says little


def describe(result: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the predictors that a run chose from, best first, and why it kept one of them.

    None if there was nothing to choose. `result` is the run's; of equal scores the first is kept.
    """
    found, kept = result.get("candidates") or [], result.get("predictor")
    if len(found) <= 1 or kept is None:
        return None
    rows = [
        {"is_kept": each["name"] == kept, "target_accuracy": None, **each}
        for each in sorted(found, key=lambda each: -each["score"])
    ]
    scored = any(row["target_accuracy"] is not None for row in rows)
    return {"rows": rows, "scored": scored, "why": explain(found, kept)}


def explain(candidates: Sequence[dict[str, Any]], kept: str) -> list[str]:
    """Returns sentences: why a predictor was kept, how close it was, and what the labels say.

    Args:
        candidates: two or more, each with `name`, `score` and, for comparison, `target_accuracy`.
        kept: the name of the one that was kept.
    """
    scores = {each["name"]: each["score"] for each in candidates}
    if kept not in scores:
        return []
    if scores[kept] < max(scores.values()):
        return [f"“{kept}” was kept."]
    others = {name: score for name, score in scores.items() if name != kept}
    listed = " and ".join(f"{_percent(score)} for “{name}”" for name, score in others.items())
    sentences = [
        f"“{kept}” was kept because the largest share of nearest neighbors, of the source and of "
        f"the target, agrees with its predictions: {_percent(scores[kept])}, against {listed}."
    ]
    lead = scores[kept] - max(others.values())
    if lead == 0:
        sentences.append("Of equal ones the first is kept.")
    elif lead < _CLOSE:
        sentences.append("The best two are less than a point apart, which says little.")
    accuracies = {each["name"]: each.get("target_accuracy") for each in candidates}
    if None not in accuracies.values():
        sentences.append(_compare(accuracies, kept))
    return sentences


def _compare(accuracies: dict[str, Any], kept: str) -> str:
    """Returns what the target's labels, which had no part in the choice, say about it."""
    best = max(accuracies, key=lambda name: accuracies[name])
    lost = accuracies[best] - accuracies[kept]
    if lost <= 0:
        return "The target's labels, which had no part in this, show no better one."
    return (
        f"The target's labels, which had no part in this, would have taken “{best}”: "
        f"its true accuracy is {100 * lost:.1f} points higher."
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f}\u202f%"
