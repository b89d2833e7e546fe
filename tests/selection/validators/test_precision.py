"""Whether a run scores as well as the best: errors against the formula for a mean."""

from dataclasses import replace

import numpy as np
import pytest

from dial.selection import validators
from dial.selection.outputs import Observation, Outputs

from .small import make


class First(validators.Validator):
    """The mean of the first logit, whose error has a formula."""

    def score(self, outputs: Outputs) -> float:
        return float(outputs.target.logits[:, 0].astype(np.float64).mean())


def with_logits(column: np.ndarray) -> Outputs:
    logits = np.stack([column, -column], axis=1).astype(np.float32)
    return replace(make(), target=Observation(logits, logits))


def equal(*columns: np.ndarray) -> list[bool]:
    runs = [with_logits(column) for column in columns]
    scores = [validators.score(First(), run) for run in runs]
    return validators.as_good_as_the_best(
        scores, [validators.score_in_parts(First(), run) for run in runs]
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_that_of_the_mean_of_paired_differences(seed: int) -> None:
    random = np.random.default_rng(seed)
    best, noise = random.normal(size=20), random.normal(size=20)
    noise -= noise.mean()
    error = noise.std(ddof=1) / np.sqrt(20)
    assert equal(best, best - noise - 1.99 * error) == [True, True]
    assert equal(best - noise - 2.01 * error, best) == [False, True]


def test_groups_of_many_images() -> None:
    """Two thousand images in twenty groups: nearly the error of the mean."""
    random = np.random.default_rng(0)
    noise = random.normal(size=2000)
    noise -= noise.mean()
    error = noise.std(ddof=1) / np.sqrt(2000)
    best = random.normal(size=2000)
    assert equal(best, best - noise - 1.2 * error) == [True, True]
    assert equal(best, best - noise - 3.0 * error) == [True, False]


def test_what_is_common_to_all_runs_does_not_count() -> None:
    column = 100 * np.random.default_rng(0).normal(size=40)
    assert equal(column, column - 1e-3) == [True, False]


def test_few_images_and_no_run() -> None:
    assert equal(np.array([1.0]), np.array([1.0]), np.array([0.5])) == [True, True, False]
    assert equal(np.array([3.0, 1.0]), np.array([1.0, 2.0])) == [True, True]
    assert validators.as_good_as_the_best([], []) == []
