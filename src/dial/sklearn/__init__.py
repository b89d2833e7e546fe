"""Domain adaptation of feature vectors with scikit-learn."""

from dial.errors import missing_extra

try:
    from dial.sklearn.classifier import DomainAdaptationClassifier
except ModuleNotFoundError as error:
    raise missing_extra(error, "sklearn") from error

__all__ = ["DomainAdaptationClassifier"]
