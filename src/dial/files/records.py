"""What files hold, against what the code declares: others may have written or damaged them."""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

_SHOWN, _LARGEST = 80, 2**63


def read_json(path: Path, kind: Any) -> Any:
    """Returns what a JSON file holds, as `require_type` wants it.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not JSON, or not of this type.
    """
    return parse_json(path.read_bytes(), kind)


def parse_json(text: str | bytes, kind: Any) -> Any:
    """Returns what JSON text holds, as `require_type` wants it; a ValueError for any other text."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("values nested too deep") from error
    require_type(value, kind)
    return value


def require_type(value: Any, kind: Any, *, name: str = "the file") -> None:
    """Refuse a value from JSON that is not of a type; numbers are finite and fit into 64 bits.

    Args:
        value: of JSON.
        kind: a type as it is written after a field's name: a plain one, a union, `list[...]`,
            `tuple[...]` (a list too), `dict[str, ...]`, a TypedDict, which may have more keys, or
            a dataclass.
        name: what to call the value.

    Raises:
        ValueError: says what the value is.

    >>> require_type({"lr": [0.1, None]}, dict[str, list[float | None]])
    >>> require_type({"lr": "fast"}, dict[str, float])
    Traceback (most recent call last):
    ...
    ValueError: lr is 'fast', not float
    """
    if kind is Any:
        return
    arguments = get_args(kind)
    if (is_typeddict(kind) or is_dataclass(kind)) and isinstance(value, dict):
        _require_keys(value, kind, name)
    elif get_origin(kind) is dict and isinstance(value, dict):
        for key, inner in value.items():
            require_type(inner, arguments[1], name=key)
    elif get_origin(kind) in (list, tuple) and isinstance(value, list):
        is_any = get_origin(kind) is list or arguments[-1] is ...
        kinds = arguments[:1] * len(value) if is_any else arguments
        if len(kinds) != len(value):
            raise ValueError(f"{name} has {len(value)} values, not {len(kinds)}")
        for inner, inner_kind in zip(value, kinds, strict=True):
            require_type(inner, inner_kind, name=f"an entry of {name}")
    elif is_typeddict(kind) or get_origin(kind) is dict:
        raise ValueError(f"{name} is a {type(value).__name__} in place of an object")
    elif get_origin(kind) in (Union, UnionType):
        _require_one_of(value, arguments, name)
    elif not _is_plain(value, kind):
        shown = ascii(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        raise ValueError(f"{name} is {shown}, not {getattr(kind, '__name__', kind)}")


def _require_keys(value: dict[str, Any], kind: Any, name: str) -> None:
    kinds = get_type_hints(kind)
    if is_dataclass(kind):
        required = {f.name for f in fields(kind) if f.default is f.default_factory is MISSING}
        unknown = sorted(value.keys() - kinds.keys())
        if unknown:
            raise ValueError(f"{name} has {unknown[0]!a}, which is not known")
    else:
        required = kind.__required_keys__
    missing = sorted(required - value.keys())
    if missing:
        raise ValueError(f"{name} has no {', '.join(missing)}")
    for key, inner in kinds.items():
        if key in value:
            require_type(value[key], inner, name=key)


def _require_one_of(value: Any, kinds: tuple[Any, ...], name: str) -> None:
    errors = []
    for kind in kinds:
        try:
            return require_type(value, kind, name=name)
        except ValueError as error:
            errors.append(error)
    raise errors[0]


def _is_plain(value: Any, kind: Any) -> bool:
    """Whether a value is of a plain type; a bool is no number, and a whole number is a float."""
    if kind in (int, float) and isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < _LARGEST
    if isinstance(value, bool | float):
        return type(value) is kind and math.isfinite(value)
    if is_typeddict(kind) or get_origin(kind) is not None:  # an object, a list or a choice
        return False
    return isinstance(value, NoneType if kind is None else kind)


def require_arrays(
    arrays: Mapping[str, Any], shapes: Mapping[str, str], sizes: dict[str, int]
) -> None:
    """Refuse arrays that are not of the shapes, or do not agree about what a letter stands for.

    Args:
        arrays: by name; None is no array, and is passed over.
        shapes: by the same names, a letter for each axis, and what is in it: `"NK float"`,
            `"N int"` for any whole numbers, or `"N K"` for those from 0 to less than `K`.
        sizes: what letters stand for already; those that are new are added.

    Raises:
        ValueError: says which array is of another shape, or what is in it.

    >>> import numpy as np
    >>> require_arrays({"a": np.ones((2, 3)), "b": np.ones(2)}, {"a": "NK float", "b": "N K"}, {})
    Traceback (most recent call last):
    ...
    ValueError: b has no whole numbers
    """
    for name, array in arrays.items():
        if array is None:
            continue
        axes, content = shapes[name].split()
        shape = tuple(array.shape)
        fits = len(shape) == len(axes)
        if not fits or any(sizes.setdefault(a, n) != n for a, n in zip(axes, shape, strict=True)):
            raise ValueError(f"{name} has the shape {shape}, not that of {axes} ({sizes})")
        kind = array.dtype.kind
        if content == "float":
            if kind != "f":
                raise ValueError(f"{name} has no fractions")
        elif kind not in "iu":
            raise ValueError(f"{name} has no whole numbers")
        elif content != "int" and not ((array >= 0) & (array < sizes[content])).all():
            raise ValueError(f"{name} has numbers that stand for none of {sizes[content]}")
