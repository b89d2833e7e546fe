"""The estimator: scikit-learn's own checks, what `dial adapt` gives, and what it refuses."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from benchmarks.heads import extract
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dial
from dial import backbones
from dial.methods import Images, create
from dial.methods.interface import Trainee
from dial.sklearn import DomainAdaptationClassifier

from ..methods.small import backbone

NAMES = np.array(["ant", "bee", "cat", "dog"])


def domains(
    *, shift: float = 3.0, classes: int = 4, count: int = 200, unit: float = 1.0
) -> tuple[Any, ...]:
    """Gaussian classes in ten dimensions; the target is moved, and measured in other units."""
    random = np.random.default_rng(0)
    centers = 2 * random.normal(size=(classes, 10))
    sides = []
    for move, scale in ((0.0, 1.0), (shift, unit)):
        labels = random.integers(classes, size=count)
        x = centers[labels] + random.normal(size=(count, 10))
        sides += [scale * (x + move * random.normal(size=10)), NAMES[labels]]
    return tuple(sides)


# No check is expected to fail. One is skipped: that of array libraries other than NumPy.
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [DomainAdaptationClassifier(), DomainAdaptationClassifier(reference="normal")]
)
def test_the_conventions_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_a_moved_target_is_classified() -> None:
    X, y, X_target, truth = domains()
    plain = LogisticRegression().fit(X, y).score(X_target, truth)
    adapted = DomainAdaptationClassifier().fit(X, y, X_target)
    assert adapted.score(X_target, truth) > max(0.95, plain + 0.2)
    assert adapted.coef_.shape == (4, 10)
    probabilities = adapted.predict_proba(X_target)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(
        adapted.classes_[probabilities.argmax(1)], adapted.predict(X_target)
    )


def test_two_classes_have_one_row() -> None:
    X, y, X_target, truth = domains(classes=2)
    adapted = DomainAdaptationClassifier().fit(X, y, X_target)
    assert adapted.coef_.shape == (1, 10)
    scores = adapted.decision_function(X_target)
    assert scores.shape == (200,)
    np.testing.assert_allclose(adapted.predict_proba(X_target)[:, 1], 1 / (1 + np.exp(-scores)))
    assert adapted.score(X_target, truth) > 0.95


def test_it_is_the_head_of_the_method_frozen() -> None:
    """The same images as a run of the method gets, and its network's features by themselves."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(20)
    offset = labels[:, None, None, None] * torch.randn(3, 1, 1, generator=generator)
    source = torch.randn(80, 3, 8, 8, generator=generator) + offset
    target = 2 * torch.randn(80, 3, 8, 8, generator=generator) + offset + 1
    method = create("frozen")
    trainee: Trainee = method.prepare(backbone())
    images = Images(source.split(16), labels, target.split(16))
    candidate = method.begin(trainee, images)["target"]
    adapted = DomainAdaptationClassifier().fit(
        candidate.source.numpy(), labels, candidate.target.numpy()
    )
    logits = candidate.logits.numpy()
    np.testing.assert_allclose(
        adapted.decision_function(candidate.target.numpy()), logits, atol=1e-4, rtol=1e-4
    )
    np.testing.assert_array_equal(adapted.predict(candidate.target.numpy()), logits.argmax(1))


@pytest.mark.slow
def test_a_run_on_digits_and_its_features_have_one_accuracy(tmp_path: Path) -> None:
    options = {"method": "frozen", "holdout": 0.0, "quiet": True}  # all images take part
    run = dial.adapt("digits:optdigits", "digits:mnist", out=tmp_path / "run", **options)
    net = replace(backbones.create("digits_cnn", num_classes=10), network=run.network)
    sides = []
    for name in ("digits:optdigits", "digits:mnist"):
        features, labels = extract(net, name, size=28, data=None, cache_dir=None)
        sides += [features.numpy(), labels.numpy()]
    X, y, X_target, truth = sides
    accuracy = DomainAdaptationClassifier().fit(X, y, X_target).score(X_target, truth)
    assert accuracy == pytest.approx(run.result["target_accuracy"], abs=0.0005)
    assert accuracy > LogisticRegression(max_iter=100).fit(X, y).score(X_target, truth) + 0.03


@pytest.mark.parametrize("reference", ["normal", "laplace", "whitened"])
def test_a_da_layer_undoes_other_units(reference: str) -> None:
    X, y, X_target, truth = domains(unit=0.02)
    units = np.logspace(-2, 2, 10)
    adapted = DomainAdaptationClassifier(reference=reference).fit(X, y, X_target * units)
    assert adapted.score(X_target * units, truth) > 0.95
    without = DomainAdaptationClassifier().fit(X, y, X_target * units)
    assert without.score(X_target * units, truth) < 0.8


def test_one_array_with_sample_domain_is_the_same_as_two() -> None:
    X, y, X_target, _ = domains()
    separate = DomainAdaptationClassifier().fit(X, y, X_target)
    both, sample_domain = np.concatenate([X_target, X]), np.repeat([-2, 1], 200)
    hidden = np.full(200, "dog"), np.full(200, "hidden")
    for masked in hidden:
        labels = np.concatenate([masked, y])
        joint = DomainAdaptationClassifier().fit(both, labels, sample_domain=sample_domain)
        np.testing.assert_array_equal(joint.coef_, separate.coef_)
        np.testing.assert_array_equal(joint.classes_, NAMES)
    numbers = np.concatenate([np.full(200, np.nan), np.searchsorted(NAMES, y)])
    joint = DomainAdaptationClassifier().fit(both, numbers, sample_domain=sample_domain)
    np.testing.assert_array_equal(joint.coef_, separate.coef_)


def test_a_pipeline_scales_both_domains_by_sample_domain() -> None:
    X, y, X_target, truth = domains()
    units = np.logspace(-3, 3, 10)
    both, labels = np.concatenate([X, X_target]) * units, np.concatenate([y, np.full(200, "?")])
    pipeline = make_pipeline(StandardScaler(), DomainAdaptationClassifier())
    where = {"domainadaptationclassifier__sample_domain": np.repeat([1, -2], 200)}
    pipeline.fit(both, labels, **where)
    assert pipeline.score(X_target * units, truth) > 0.95


def test_search_clone_and_pickle() -> None:
    X, y, X_target, _ = domains()
    search = GridSearchCV(
        DomainAdaptationClassifier(), {"reference": [None, "normal"], "n_rounds": [1, 5]}, cv=2
    )
    search.fit(X, y, X_target=X_target[:150])
    best = search.best_estimator_
    assert set(best.get_params()) == {"reference", "n_neighbors", "n_rounds"}
    again = clone(best).fit(X, y, X_target[:150])
    loaded = pickle.loads(pickle.dumps(again))
    np.testing.assert_array_equal(again.coef_, best.coef_)
    np.testing.assert_array_equal(loaded.predict_proba(X_target), best.predict_proba(X_target))


def test_float32_stays_float32() -> None:
    X, y, X_target, _ = domains()
    half = DomainAdaptationClassifier().fit(X.astype(np.float32), y, X_target.astype(np.float32))
    assert half.coef_.dtype == np.float32
    assert half.decision_function(X_target.astype(np.float32)).dtype == np.float32
    whole = DomainAdaptationClassifier().fit(X, y, X_target)
    assert whole.coef_.dtype == np.float64
    np.testing.assert_allclose(half.coef_, whole.coef_, atol=1e-3)


def test_names_of_features_are_kept_and_compared() -> None:
    X, y, X_target, _ = domains()
    columns = [f"f{number}" for number in range(10)]
    frames = pandas.DataFrame(X, columns=columns), pandas.DataFrame(X_target, columns=columns)
    adapted = DomainAdaptationClassifier().fit(frames[0], y, frames[1])
    assert list(adapted.feature_names_in_) == columns
    with pytest.raises(ValueError, match="feature names should match"):
        adapted.fit(frames[0], y, frames[1].rename(columns={"f0": "other"}))


X, Y, X_TARGET, _ = domains(count=30)
DOMAIN = np.repeat([1, -2], 15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, Y, X_TARGET[:, :4]), "X_target with the 10 features of X, got 4"),
        ((X, Y, np.where(X_TARGET > 1, np.nan, X_TARGET)), "Input X_target contains NaN"),
        ((np.where(X > 1, np.inf, X), Y, X_TARGET), "Input X contains infinity"),
        ((X, np.full(30, "cat"), X_TARGET), "two classes or more, got one class"),
        ((X, np.linspace(0, 1, 30), X_TARGET), "Unknown label type: continuous"),
        ((X, Y[:20], X_TARGET), "inconsistent numbers of samples"),
    ],
)
def test_wrong_arrays_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DomainAdaptationClassifier().fit(*arguments)


@pytest.mark.parametrize(
    ("sample_domain", "message"),
    [
        (np.ones(30), "30 positive and 0 negative"),
        (-np.ones(30), "0 positive and 30 negative"),
        (np.repeat([1, 0, -2], 10), "10 positive and 10 negative"),
        (DOMAIN[:20], "inconsistent numbers of samples"),
    ],
)
def test_wrong_domains_are_refused(sample_domain: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DomainAdaptationClassifier().fit(X, Y, sample_domain=sample_domain)


def test_other_mistakes_are_refused() -> None:
    with pytest.raises(dial.DialError, match="X_target or sample_domain, got both"):
        DomainAdaptationClassifier().fit(X, Y, X_TARGET, sample_domain=DOMAIN)
    with pytest.raises(TypeError, match="Sparse data was passed for X_target"):
        DomainAdaptationClassifier().fit(X, Y, csr_array(X_TARGET))
    for name, value in (("n_neighbors", 0), ("n_rounds", 2.5)):
        estimator = DomainAdaptationClassifier(**{name: value})
        with pytest.raises(dial.DialError, match=f"{name} to be a whole number from 1 on"):
            estimator.fit(X, Y, X_TARGET)
    with pytest.raises(dial.DialError, match="nothing"):
        DomainAdaptationClassifier(reference="nothing").fit(X, Y, X_TARGET)


def test_it_needs_scikit_learn_alone_beside_the_core() -> None:
    code = """
import sys
for name in ("torchvision", "PIL", "timm", "typer", "rich", "mlxtend", "lightning_fabric"):
    sys.modules[name] = None
from dial.sklearn import DomainAdaptationClassifier
sys.modules["sklearn"] = None
for name in [name for name in sys.modules if name.startswith(("sklearn.", "dial.sklearn"))]:
    del sys.modules[name]
import dial
try:
    import dial.sklearn
except dial.DialError as error:
    print(error)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.startswith("wanted the package sklearn, got an environment")
    assert 'pip install "dial-da[sklearn]"' in made.stdout
