"""Which of a run's predictors was kept, and why, in words."""

from collections.abc import Sequence
from typing import Any

ABOUT = {
    "start": "the finished model that the run started from",
    "frozen": "a head fitted to the features of the network as it was before training",
    "classifier": "the trained network with its own classifier",
    "head": "the trained network with a head fitted to its features",
}
"""What predictors are, by their names."""
_CLOSE = 0.01  # difference of scores that says little


def describe(result: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the predictors that a run chose from, best first, and why it kept one of them.

    None if there was nothing to choose. `result` is the run's; of equal scores the first is kept.
    """
    if not _has_chosen(result):
        return None
    found, kept = result["candidates"], result["predictor"]
    rows = [
        {"is_kept": each["name"] == kept, "target_accuracy": None, **each}
        for each in sorted(found, key=lambda each: -each["score"])
    ]
    scored = any(row["target_accuracy"] is not None for row in rows)
    return {"rows": rows, "scored": scored, "why": explain(found, kept)}


def about_kept(result: dict[str, Any]) -> str:
    """Returns what the predictor is that a run kept; nothing if there was nothing to choose."""
    return ABOUT.get(result["predictor"], "") if _has_chosen(result) else ""


def _has_chosen(result: dict[str, Any]) -> bool:
    return len(result.get("candidates") or ()) > 1 and result.get("predictor") is not None


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
    equal = [f"“{name}”" for name, score in others.items() if score == scores[kept]]
    listed = " and ".join(f"{_percent(score)} for “{name}”" for name, score in others.items())
    reason = (
        "the largest share of nearest neighbors, of the source and of the target, agrees with its "
        f"predictions: {_percent(scores[kept])}"
    )
    sentences = [f"“{kept}” was kept because {reason}, against {listed}."]
    if equal:
        sentences = [f"For “{kept}” {reason}, as many as for {' and '.join(equal)}."]
        sentences.append("Of equal ones the first is kept.")
    elif scores[kept] - max(others.values()) < _CLOSE:
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
