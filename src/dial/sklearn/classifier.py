"""The head on feature vectors, and DA-layers before it, as an estimator of scikit-learn."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.extmath import softmax
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    check_X_y,
    validate_data,
)
from torch import Tensor, nn

from dial.errors import DialError
from dial.head import fit_head
from dial.layers import DomainAlignment, convert, domain_layers, fold, use_domain
from dial.references import Reference

Array = npt.NDArray[Any]
_FLOATS = (np.float64, np.float32)
_BINARY = 2


class DomainAdaptationClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier for a target without labels, from labelled vectors of a source.

    The head of `dial adapt --method frozen`: each domain's mean is removed, labels travel over the
    graph of nearest neighbors of both domains, and a ridge regression on the source and the surest
    target vectors becomes the classifier. It is for vectors of the target as they are, also those
    that it was not fitted to. Nothing is random: two fits to the same data are equal.

    Args:
        reference: a DA-layer in front of the head, which maps every feature of each domain onto a
            reference distribution, by name ("normal", "laplace", ...) or as an object; None to
            remove each domain's mean alone. Statistics are those of the whole domains.
        n_neighbors: neighbors of each vector in the graph.
        n_rounds: how often the target's pseudo-labels are made.

    Attributes:
        classes_: the classes of the source, sorted, `(K,)`.
        coef_: weights `(K, D)`, or `(1, D)` for two classes, for vectors of the target.
        intercept_: `(K,)`, or `(1,)` for two classes.
        n_features_in_: `D`.
        feature_names_in_: names of the features, if `X` had any.

    >>> random = np.random.default_rng(0)
    >>> y = np.repeat(["cat", "dog"], 50)
    >>> X = random.normal(size=(100, 4)) + 4 * (y == "dog")[:, None]
    >>> moved = X + 10
    >>> float(DomainAdaptationClassifier().fit(X, y, moved).score(moved, y))
    1.0
    """

    def __init__(
        self,
        *,
        reference: str | Reference | None = None,
        n_neighbors: int = 5,
        n_rounds: int = 5,
    ) -> None:
        self.reference = reference
        self.n_neighbors = n_neighbors
        self.n_rounds = n_rounds

    def fit(
        self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None
    ) -> "DomainAdaptationClassifier":
        """Fit the classifier to the target.

        Both domains are in two arrays, or, as skada has them, in one: then `sample_domain` says
        for each row of `X` which it is, and labels of the target's rows are ignored.

        Args:
            X: vectors of the source `(N, D)`, or of both domains.
            y: their labels, `(N,)`.
            X_target: vectors of the target `(M, D)`; without any, the source is the target.
            sample_domain: positive for rows of the source and negative for those of the target.

        Returns:
            The classifier itself.

        Raises:
            DialError: a setting out of range, a source of one class, domains that do not match.
            ValueError, TypeError: scikit-learn's own about arrays: NaN, sparse, wrong shapes.
        """
        for name in ("n_neighbors", "n_rounds"):
            _check_positive(name, getattr(self, name))
        if sample_domain is None:
            source, labels = validate_data(self, X, y, dtype=_FLOATS)
            target = source if X_target is None else self._check_target(X_target, source.dtype)
        elif X_target is not None:
            raise DialError(
                wanted="X_target or sample_domain",
                got="both",
                fix="leave X_target out where X has the rows of both domains",
            )
        else:
            source, labels, target = self._split(X, y, sample_domain)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < _BINARY:
            raise DialError(
                wanted="source vectors of two classes or more",
                got="one class",
                fix="give labelled vectors of every class that the target may have",
            )
        weight, bias = self._fit(source, torch.from_numpy(numbers), target)
        if len(self.classes_) == _BINARY:
            weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
        self.coef_, self.intercept_ = weight.numpy(), bias.numpy()
        return self

    def decision_function(self, X: Any) -> Array:
        """Returns the logits of target vectors, `(N, K)`, or of the second of two, `(N,)`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=_FLOATS, reset=False)
        scores: Array = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == _BINARY else scores

    def predict(self, X: Any) -> Array:
        """Returns the classes of target vectors, `(N,)`."""
        scores = self.decision_function(X)
        numbers = scores.argmax(1) if scores.ndim > 1 else (scores > 0).astype(int)
        return self.classes_[numbers]  # type: ignore[no-any-return]

    def predict_proba(self, X: Any) -> Array:
        """Returns the probabilities of the classes for target vectors, `(N, K)`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        return softmax(scores)  # type: ignore[no-any-return]

    def _fit(self, source: Array, labels: Tensor, target: Array) -> tuple[Tensor, Tensor]:
        """Returns the weight `(K, D)` and bias `(K,)` for vectors of the target."""
        # Copies, because scikit-learn may hand over arrays that torch cannot share.
        vectors = {"source": torch.tensor(source), "target": torch.tensor(target)}
        linear = nn.Linear(source.shape[1], len(self.classes_), dtype=vectors["source"].dtype)
        network: nn.Module = nn.Sequential(linear)
        if self.reference is not None:
            network = convert(network, reference=self.reference, insert_before=["0"])
            vectors = {name: _align(network, name, x) for name, x in vectors.items()}
        head = fit_head(
            [(vectors["source"], vectors["target"])],
            labels,
            num_classes=len(self.classes_),
            rounds=self.n_rounds,
            neighbors=self.n_neighbors,
        )
        with torch.no_grad():
            linear.weight.copy_(head.weight)
            linear.bias.copy_(head.bias)
        plain = network if self.reference is None else fold(network, "target")
        weight, bias = (parameter.detach() for parameter in plain.parameters())
        return weight, bias

    def _check_target(self, X_target: Any, dtype: Any) -> Array:
        target = check_array(X_target, dtype=dtype, input_name="X_target")
        if target.shape[1] != self.n_features_in_:
            raise DialError(
                wanted=f"X_target with the {self.n_features_in_} features of X",
                got=f"{target.shape[1]}",
                fix="give both domains the same features",
            )
        validate_data(self, X_target, reset=False, skip_check_array=True)  # the features' names
        return target  # type: ignore[no-any-return]

    def _split(self, X: Any, y: Any, sample_domain: Any) -> tuple[Array, Array, Array]:
        """Returns the source's vectors and labels, and the target's vectors."""
        both = validate_data(self, X, dtype=_FLOATS)
        domain = check_array(sample_domain, ensure_2d=False, input_name="sample_domain")
        check_consistent_length(both, y, domain)
        is_source = domain > 0
        if domain.ndim != 1 or (domain == 0).any() or is_source.all() or not is_source.any():
            raise DialError(
                wanted="sample_domain with a positive number for each row of the source and a "
                "negative one for each of the target",
                got=f"shape {domain.shape} with {int(is_source.sum())} positive and "
                f"{int((domain < 0).sum())} negative",
                fix="number the source 1 and the target -2, as skada does",
            )
        source, labels = check_X_y(both[is_source], np.asarray(y)[is_source], dtype=_FLOATS)
        return source, labels, both[~is_source]


@torch.no_grad()
def _align(network: nn.Module, domain: str, x: Tensor) -> Tensor:
    """Returns the vectors after the DA-layer, which gets the statistics of all of them."""
    (layer,) = domain_layers(network).values()
    assert isinstance(layer, DomainAlignment)  # noqa: S101 - what `convert` puts in
    layer.set_statistics(domain, layer.reference.estimate(x))
    with use_domain(network, domain):
        return layer.eval()(x)  # type: ignore[no-any-return]


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, (int, np.integer)) or value < 1:
        raise DialError(
            wanted=f"{name} to be a whole number from 1 on", got=repr(value), fix="choose another"
        )
