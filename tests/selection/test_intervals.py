"""Intervals of accuracies: SciPy's distributions as the oracle, coverage by enumeration."""

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import beta, binom, hypergeom

from dial import DialError
from dial.selection.intervals import accuracy_interval

Array = npt.NDArray[np.float64]
SAMPLE = 50
interval = cache(accuracy_interval)


@cache
def probabilities(images: int, population: int) -> Array:
    """`(N + 1, n + 1)`: of each outcome, for each number of right images in the population."""
    outcomes, right = np.arange(images + 1), np.arange(population + 1)
    table: Array = hypergeom.pmf(outcomes[None], population, right[:, None], images)
    return table


def by_definition(table: Array, seen: int) -> tuple[int, int]:
    """The first and the last row under which what was seen is not too unlikely."""
    same = table[:, seen : seen + 1]
    equal = np.isclose(table, same, rtol=1e-9, atol=0)
    tail = (table * ((table < same) & ~equal)).sum(1) + (table * equal).sum(1) / 2
    stay = np.flatnonzero((same[:, 0] > 0) & (tail >= 0.05 - 1e-9))
    return int(stay[0]), int(stay[-1])


@pytest.mark.parametrize("population", [50, 60, 200, 795])
@pytest.mark.parametrize("images", [1, 7, 50])
def test_the_interval_is_what_its_definition_says(images: int, population: int) -> None:
    table = probabilities(images, population)
    for right in range(images + 1):
        low, high = by_definition(table, right)
        wanted = (low / population, high / population)
        assert accuracy_interval(right, images, population) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("right", [0, 1, 20, 46, 49, 50])
def test_without_a_population_outcomes_are_binomial(right: int) -> None:
    shares = np.arange(10_001) / 10_000
    table = binom.pmf(np.arange(51)[None], 50, shares[:, None])
    low, high = by_definition(table, right)
    assert accuracy_interval(right, 50) == pytest.approx((shares[low], shares[high]), abs=1e-9)


def coverage(images: int, population: int) -> tuple[Array, Array]:
    """Accuracies from 0.5 to 0.98 and how often the interval of a sample covers each, exactly."""
    table = probabilities(images, population)
    truth = np.arange(population + 1) / population
    ends = np.array([interval(x, images, population) for x in range(images + 1)])
    inside = (ends[:, 0] - 1e-9 <= truth[:, None]) & (truth[:, None] <= ends[:, 1] + 1e-9)
    some = (truth >= 0.5) & (truth <= 0.98)
    return truth[some], (table * inside).sum(1)[some]


def reachable(images: int, population: int) -> npt.NDArray[np.bool_]:
    """Whether any range of outcomes at all has a probability from 93 to 97 %."""
    right = np.arange(population + 1) / population
    table = probabilities(images, population)[(right >= 0.5) & (right <= 0.98)]
    sums = np.pad(table.cumsum(1), ((0, 0), (1, 0)))
    ranges = sums[:, None, :] - sums[:, :, None]
    found: npt.NDArray[np.bool_] = ((ranges >= 0.93) & (ranges <= 0.97)).any((1, 2))
    return found


@pytest.mark.parametrize("population", [200, 795, 5000])
def test_ninety_five_of_a_hundred_samples_cover_the_truth(population: int) -> None:
    _, covered = coverage(SAMPLE, population)
    assert 0.945 <= covered.mean() <= 0.955
    assert covered.min() > 0.915
    assert covered.max() < 0.99
    within = (covered >= 0.93) & (covered <= 0.97)
    assert within.mean() >= 0.965
    assert within.mean() >= reachable(SAMPLE, population).mean() - 0.01  # nearly all that can be


@pytest.mark.parametrize("population", [200, 795, 5000])
def test_simulated_samples_cover_the_truth_too(population: int) -> None:
    random = np.random.default_rng(0)
    hits = []
    for accuracy in random.uniform(0.5, 0.98, 20):
        images = random.permutation(population) < round(accuracy * population)  # right or not
        truth = images.mean()
        for _ in range(200):
            right = int(random.choice(images, SAMPLE, replace=False).sum())
            low, high = interval(right, SAMPLE, population)
            hits.append(low - 1e-9 <= truth <= high + 1e-9)
    assert 0.93 <= np.mean(hits) <= 0.97


def test_it_is_shorter_than_clopper_and_pearsons_and_lies_about_it() -> None:
    for right in range(1, 200, 7):
        low, high = accuracy_interval(right, 200)
        exact = beta.ppf(0.025, right, 201 - right), beta.ppf(0.975, right + 1, 200 - right)
        assert high - low < exact[1] - exact[0]
        assert (low, high) == pytest.approx(exact, abs=0.01)


def test_large_samples_have_the_normal_interval() -> None:
    half = 1.96 * np.sqrt(0.9 * 0.1 / 20_000)
    low, high = accuracy_interval(18_000, 20_000)
    assert (low, high) == pytest.approx((0.9 - half, 0.9 + half), abs=2e-4)


def test_ends() -> None:
    assert accuracy_interval(0, 0) == (0.0, 1.0)
    assert accuracy_interval(30, 40, population=40) == (0.75, 0.75)  # nothing is left to chance
    low, high = accuracy_interval(50, 50, population=795)
    assert high == 1.0
    assert 0.9 < low < 1
    with pytest.raises(DialError, match="a sample of at most 40 images"):
        accuracy_interval(30, 50, population=40)
