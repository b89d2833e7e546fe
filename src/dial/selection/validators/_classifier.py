"""Linear classifiers on features, fitted the same way each time."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

_STEPS = 1000


def fit(features: npt.NDArray[Any], labels: npt.NDArray[np.int64], *, strength: float) -> Any:
    """A logistic classifier of scikit-learn on standardised features.

    Args:
        features: `(N, D)`.
        labels: `(N,)`, of two classes or more.
        strength: of its training set against the L2 penalty, scikit-learn's `C`.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=_STEPS))
    with warnings.catch_warnings():  # separable classes have no end to converge to
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(features.astype(np.float64), labels)
