"""Adaptation methods, one a file, and the interface for a method of one's own."""

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

from dial.data.batches import Batch as Batch
from dial.errors import DialError
from dial.head import fit_head as fit_head
from dial.head import nearest as nearest
from dial.methods._agreement import agreement as agreement
from dial.methods._centroids import set_centroid_classifier as set_centroid_classifier
from dial.methods._contract import check_method as check_method
from dial.methods.interface import ByDomain as ByDomain
from dial.methods.interface import Candidate as Candidate
from dial.methods.interface import Images as Images
from dial.methods.interface import Method as Method
from dial.methods.interface import Output as Output
from dial.methods.interface import PlainMethod as PlainMethod
from dial.methods.interface import Prototypes as Prototypes
from dial.methods.interface import Terms as Terms
from dial.methods.interface import Trainee as Trainee
from dial.methods.interface import both as both
from dial.methods.interface import cross_entropy as cross_entropy
from dial.methods.interface import linear_classifier as linear_classifier
from dial.methods.interface import shares as shares
from dial.methods.interface import target_of as target_of
from dial.methods.interface import warmup_factor as warmup_factor
from dial.registry import Registry

METHODS = Registry("dial.methods", Method)  # type: ignore[type-abstract]
names, describe = METHODS.names, METHODS.describe
_RENAMED = {"regularisation": "regularization"}


def kind(method: str | Method) -> type[Method]:
    """Returns the class of a method; its dataclass fields are the method's settings."""
    return cast(type[Method], METHODS.factory(method)) if isinstance(method, str) else type(method)


def create(method: str | Method, settings: Mapping[str, Any] | None = None) -> Method:
    """Returns the method of a name, or an object, with these settings.

    Args:
        method: a name, or an object, which is copied where settings change its fields.
        settings: values of the method's fields; None stands for the default.

    Raises:
        DialError: no such method, or a setting that it does not have.

    >>> create("adabn_coral", {"start": "probe"})
    AdaBNCoral(start='probe', statistics='batch', regularization=1.0)
    """
    base = METHODS.create(method)
    values = {name: value for name, value in (settings or {}).items() if value is not None}
    if not values:
        return base
    known = [field.name for field in fields(base)]
    values = rename(values, known)
    unknown = [name for name in values if name not in known]
    if unknown:
        near = [match for name in unknown for match in difflib.get_close_matches(name, known, n=1)]
        title = method if isinstance(method, str) else type(method).__name__
        raise DialError(
            wanted=f"settings of the method {title} ({', '.join(known)})",
            got=", ".join(unknown),
            fix=(f"did you mean {near[0]}? If not, " if near else "")
            + "leave those out, or choose the method that has them",
        )
    return replace(base, **values)


def rename(values: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Returns the settings with former names replaced; warns of them."""
    for former, name in _RENAMED.items():
        if former in values and former not in known and name in known and name not in values:
            warnings.warn(f"the setting {former} is now called {name}", FutureWarning, stacklevel=3)
            values = {name if key == former else key: value for key, value in values.items()}
    return values
