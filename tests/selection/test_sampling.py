"""Which images are drawn: by chance, or unsure, typical and different ones."""

from collections import Counter

import numpy as np
import pytest

from dial.selection.sampling import choose_for_training, kept_for_scoring, shuffle


def test_every_image_is_as_likely_as_any_other() -> None:
    drawn = Counter(int(row) for seed in range(2000) for row in shuffle(20, seed=seed)[:5])
    assert sorted(drawn) == [*range(20)]
    assert max(abs(count - 500) for count in drawn.values()) < 4 * np.sqrt(2000 * 0.25 * 0.75)


def test_a_smaller_sample_is_the_beginning_of_a_larger_one() -> None:
    assert sorted(shuffle(100, seed=3)) == [*range(100)]
    assert shuffle(100, seed=3)[:10].tolist() == shuffle(100, seed=3)[:30][:10].tolist()


@pytest.mark.parametrize(
    ("population", "count", "kept"), [(795, 50, 398), (60, 20, 50), (0, 9, 50)]
)
def test_at_least_a_half_is_kept_for_scoring(population: int, count: int, kept: int) -> None:
    assert kept_for_scoring(population, count) == kept


def made_up(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Six groups of 30 images in feature space and 20 outliers; the last three groups are sure."""
    random = np.random.default_rng(seed)
    centers = 10 * np.eye(6, 8)
    group = np.repeat(np.arange(6), 30)
    features = centers[group] + 0.3 * random.normal(size=(180, 8))
    features = np.concatenate([features, 10 * random.normal(size=(20, 8))])
    group = np.append(group, np.full(20, -1))
    gap = np.where(group >= 3, 8.0, random.uniform(0, 1, 200))
    gap[group == -1] = 9.0
    logits = np.stack([gap, np.zeros(200), np.full(200, -9.0)], axis=1)
    return logits.astype(np.float32), features.astype(np.float32), group


def test_chosen_images_are_unsure_and_of_every_group() -> None:
    logits, features, group = made_up()
    chosen = choose_for_training(logits, features, 6, seed=0)
    assert len({*chosen.tolist()}) == 6
    assert {*group[chosen].tolist()} >= {0, 1, 2}
    assert -1 not in group[chosen]  # nobody's neighbors
    logits, features, group = made_up()
    unsure = choose_for_training(logits, features, 3, seed=0)
    assert sorted(group[unsure].tolist()) == [0, 1, 2]


def test_the_same_seed_chooses_the_same() -> None:
    logits, features, _ = made_up()
    one, two, three = (choose_for_training(logits, features, 20, seed=s) for s in (0, 0, 1))
    assert one.tolist() == two.tolist() != three.tolist()


def test_copies_and_few_images() -> None:
    logits, features = np.zeros((30, 3), np.float32), np.ones((30, 4), np.float32)
    assert len({*choose_for_training(logits, features, 10, seed=0).tolist()}) == 10
    assert sorted(choose_for_training(logits, features, 40, seed=0)) == [*range(30)]
    features[:] = 0  # no direction at all
    assert len(choose_for_training(logits, features, 5, seed=0)) == 5
