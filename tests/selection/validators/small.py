"""Small outputs to score, and probabilities and entropies in loops."""

import math

import numpy as np

from dial.selection.outputs import LabelledObservation, Observation, Outputs


def make(*, seed: int = 0, shift: float = 1.0, classes: int = 4) -> Outputs:
    """Features in clusters, one a class, the target's beside the source's; a linear classifier."""
    random = np.random.default_rng(seed)
    centres = 3 * random.normal(size=(classes, 6))
    weight = centres.T + 0.5 * random.normal(size=(6, classes))

    def observe(count: int, moved: float) -> LabelledObservation:
        labels = random.integers(0, classes, count)
        features = (centres[labels] + random.normal(size=(count, 6)) + moved).astype(np.float32)
        logits = (features @ weight / 8).astype(np.float32)
        return LabelledObservation(logits, features, labels)

    target = observe(70, shift)
    return Outputs(
        target=Observation(target.logits, target.features),
        training=observe(90, 0),
        held_out=observe(40, 0),
    )


def probabilities(logits: np.ndarray) -> list[list[float]]:
    rows = [[math.exp(value) for value in row] for row in logits.tolist()]
    return [[value / sum(row) for value in row] for row in rows]


def entropy(row: list[float]) -> float:
    return -sum(p * math.log(p) for p in row if p)
