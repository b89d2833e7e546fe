"""Each validator against a version of its own in loops, and what degenerate outputs give."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dial import DialError
from dial.selection import validators
from dial.selection.outputs import Outputs, Seen
from dial.selection.validators import deep_embedded_validation


def make(*, seed: int = 0, shift: float = 1.0, classes: int = 4) -> Outputs:
    """Features in clusters, one a class, the target's beside the source's; a linear classifier."""
    random = np.random.default_rng(seed)
    centres = 3 * random.normal(size=(classes, 6))
    weight = centres.T + 0.5 * random.normal(size=(6, classes))

    def seen(count: int, moved: float, *, labelled: bool) -> Seen:
        labels = random.integers(0, classes, count)
        features = (centres[labels] + random.normal(size=(count, 6)) + moved).astype(np.float32)
        logits = (features @ weight / 8).astype(np.float32)
        return Seen(logits, features, labels if labelled else None)

    return Outputs(
        target=seen(70, shift, labelled=False),
        training=seen(90, 0, labelled=True),
        held_out=seen(40, 0, labelled=True),
    )


def held(outputs: Outputs) -> tuple[Seen, np.ndarray]:
    assert outputs.held_out is not None
    assert outputs.held_out.labels is not None
    return outputs.held_out, outputs.held_out.labels


def probabilities(logits: np.ndarray) -> list[list[float]]:
    rows = [[math.exp(value) for value in row] for row in logits.tolist()]
    return [[value / sum(row) for value in row] for row in rows]


def entropy(row: list[float]) -> float:
    return -sum(p * math.log(p) for p in row if p)


def test_runs_that_keep_the_source() -> None:
    """Pairs counted one by one: so many images lost against the best, so many won."""

    def keep(*right: str) -> list[bool]:
        labels = np.zeros(len(right[0]), dtype=np.int64)
        logits = [np.array([[1, 0] if r == "+" else [0, 1] for r in row], float) for row in right]
        held = [Seen(each, each, labels) for each in logits]
        runs = [Outputs(target=seen, training=seen, held_out=seen) for seen in held]
        return validators.keep_the_source([validators.right_of_source(run) for run in runs])

    best = "++++++++++--"
    assert keep(best, "+++++++++---") == [True, True]  # 1 lost: 1 <= sqrt(1)
    assert keep("++++++++----", best) == [False, True]  # 2 lost: 2 > sqrt(2)
    assert keep(best, "+++++++---+-") == [True, True]  # 3 lost, 1 won: 2 <= sqrt(4)
    assert keep(best, "++++++----+-") == [True, False]  # 4 lost, 1 won: 3 > sqrt(5)
    without = validators.right_of_source(replace(make(), held_out=None))
    assert validators.keep_the_source([without, without]) == [True, True]
    assert validators.keep_the_source([]) == []


def test_source_accuracy() -> None:
    outputs = make()
    seen, labels = held(outputs)
    pairs = zip(seen.logits, labels, strict=True)
    right = sum(max(range(4), key=row.__getitem__) == label for row, label in pairs)
    assert validators.score("source_accuracy", outputs) == right / 40


def test_information_maximisation() -> None:
    outputs = make()
    rows = probabilities(outputs.target.logits)
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    expected = entropy(mean) - sum(map(entropy, rows)) / len(rows)
    assert validators.score("information_maximisation", outputs) == pytest.approx(expected)


def test_soft_neighbourhood_density() -> None:
    outputs = make()
    rows = probabilities(outputs.target.logits)
    units = [[p / math.sqrt(sum(q * q for q in row)) for p in row] for row in rows]
    total = 0.0
    for i, one in enumerate(units):
        near = [
            math.exp(sum(a * b for a, b in zip(one, other, strict=True)) / 0.05)
            for j, other in enumerate(units)
            if j != i
        ]
        total += entropy([value / sum(near) for value in near])
    found = validators.score("soft_neighbourhood_density", outputs)
    assert found == pytest.approx(total / len(units))


def test_density_in_parts_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = validators.score("soft_neighbourhood_density", make())
    monkeypatch.setattr("dial.selection.validators.soft_neighbourhood_density._ROWS", 7)
    assert validators.score("soft_neighbourhood_density", make()) == pytest.approx(whole)


def test_deep_embedded_validation() -> None:
    outputs = make()
    seen, labels = held(outputs)
    both = np.concatenate([outputs.training.features, outputs.target.features]).astype(float)
    mean, deviation = both.mean(0), both.std(0)
    model = LogisticRegression(C=0.01, max_iter=1000)
    model.fit((both - mean) / deviation, [0] * 90 + [1] * 70)
    weights, losses = [], []
    for feature, row, label in zip(seen.features, probabilities(seen.logits), labels, strict=True):
        source, target = model.predict_proba([(feature - mean) / deviation])[0]
        weights.append(90 / 70 * target / source)
        losses.append(-math.log(row[label]))
    products = [w * loss for w, loss in zip(weights, losses, strict=True)]
    w_mean, p_mean = sum(weights) / 40, sum(products) / 40
    covariance = sum((p - p_mean) * (w - w_mean) for p, w in zip(products, weights, strict=True))
    eta = -covariance / sum((w - w_mean) ** 2 for w in weights)
    expected = p_mean + eta * w_mean - eta
    found = validators.score("deep_embedded_validation", outputs)
    assert found == pytest.approx(-expected, rel=1e-4)


def test_control_variate_makes_the_risk_less_noisy() -> None:
    random = np.random.default_rng(0)
    plain, controlled = [], []
    for _ in range(300):
        weight = random.exponential(size=50)
        loss = 1 + 0.1 * random.normal(size=50)
        plain.append(np.mean(weight * loss))
        controlled.append(deep_embedded_validation.risk(weight, loss))
    assert np.std(controlled) < np.std(plain) / 2
    assert np.mean(controlled) == pytest.approx(1, abs=0.01)
    assert deep_embedded_validation.risk(np.ones(5), np.arange(5.0)) == 2.0


def test_reverse_validation() -> None:
    outputs = make()
    seen, labels = held(outputs)
    features = outputs.target.features.astype(float)
    mean, deviation = features.mean(0), features.std(0)
    model = LogisticRegression(C=0.1, max_iter=1000)
    model.fit((features - mean) / deviation, outputs.target.logits.argmax(1))
    right = model.predict((seen.features - mean) / deviation) == labels
    found = validators.score("reverse_validation", outputs)
    assert 0.25 < found < 1
    assert found == pytest.approx(right.mean())


@pytest.mark.parametrize("name", validators.names())
def test_contract(name: str) -> None:
    outputs = make()
    value = validators.score(name, outputs)
    assert math.isfinite(value)
    assert value == validators.score(name, outputs)
    one = outputs.target.logits.copy()
    one[:, 2] += 1000  # collapsed, and far from where an exponential overflows
    collapsed = replace(outputs, target=replace(outputs.target, logits=one))
    assert math.isfinite(validators.score(name, collapsed))
    bare = replace(outputs, held_out=None)
    if validators.needs_held_out(name):
        with pytest.raises(DialError, match=f"which {name} judges by, got none in the run's"):
            validators.score(name, bare)
    else:
        assert validators.score(name, bare) == value


def test_collapse_scores_nothing_in_information_and_chance_in_reverse() -> None:
    outputs = make()
    one = np.zeros_like(outputs.target.logits)
    one[:, 1] = 1000
    collapsed = replace(outputs, target=replace(outputs.target, logits=one))
    assert validators.score("information_maximisation", collapsed) == pytest.approx(0, abs=1e-12)
    _, labels = held(outputs)
    assert validators.score("reverse_validation", collapsed) == np.mean(labels == 1)


def test_wrong_use() -> None:
    outputs = make()
    with pytest.raises(DialError, match=r"one of the validators .*, got 'magic'"):
        validators.score("magic", outputs)
    logits = np.full_like(outputs.target.logits, np.nan)
    broken = replace(outputs, target=replace(outputs.target, logits=logits))
    with pytest.raises(DialError, match="outputs that information_maximisation can judge, got a"):
        validators.score("information_maximisation", broken)
    alone = Seen(outputs.target.logits[:1], outputs.target.features[:1])
    with pytest.raises(DialError, match="two target images or more, got 1"):
        validators.score("soft_neighbourhood_density", replace(outputs, target=alone))
