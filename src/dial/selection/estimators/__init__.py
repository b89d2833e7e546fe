"""Estimators of a run's accuracy on the target, one a file; none needs a label of the target."""

from dial.registry import Registry
from dial.selection.estimators.interface import Estimator as Estimator

ESTIMATORS: Registry[Estimator] = Registry(
    "dial.selection.estimators",
    Estimator,  # type: ignore[type-abstract]
)
names, describe = ESTIMATORS.names, ESTIMATORS.describe
