"""Ways in which bytes and JSON go wrong, as Hypothesis strategies from sound to damaged ones."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Mutation = Callable[[bytes], SearchStrategy[bytes]]
"""From a file's sound content to its damaged ones."""


class Content(bytes):
    """Bytes of which a failing test shows the beginning."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{bytes(self[:2000])!r} ({len(self)} bytes)"


_DEEP, _DIGITS = 100_000, 5_000
# Texts that `json` would not write, by what stands for them until the document is written.
_RAW = {
    "@deep list": "[" * _DEEP + "]" * _DEEP,
    "@deep object": '{"a":' * _DEEP + "1" + "}" * _DEEP,
    "@digits": "9" * _DIGITS,
    "@exponent": "1e999999",
}
_TWICE = "@twice"  # at the end of a key: the same key again
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 0.5, -0.5, 1e308, 2**31, 2**63, -(2**70)),
    *(float("nan"), float("inf"), float("-inf")),
    *("", "a", "0", "\0", "\ud800", "é" * 300, "../../x", "/dev/zero", "none", "auto", "source"),
    *([], {}, [None], [[]], {"a": 1}, ["a", "a"], [1, 2.5], [0.1, 0.9], {"": []}, *_RAW),
)
_NOISE = (
    b"\0",
    b"\xff",
    b"\xc3(",
    b"\xed\xa0\x80",
    b"\n",
    b"\r",
    b'"',
    b",",
    b"\t",
    b"{",
    b"[",
    b"9",
)


@st.composite
def raw(draw: DrawFn, content: bytes) -> bytes:
    """Bits flipped, bytes lost, repeated or put in, or the end cut off: up to four times."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        size = len(data)
        start = draw(st.integers(0, min(size, 300)) | st.integers(0, size))
        length = draw(st.integers(1, 8) | st.integers(1, max(8, size)))
        match draw(st.sampled_from(("flip", "cut", "drop", "repeat", "insert", "overwrite"))):
            case "flip" if start < size:
                data[start] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[start:]
            case "drop":
                del data[start : start + length]
            case "repeat":
                data[start:start] = data[start : start + length]
            case "overwrite":
                data[start : start + 4] = draw(st.binary(min_size=4, max_size=4))
            case _:
                data[start:start] = draw(st.sampled_from(_NOISE)) * draw(st.integers(1, 40))
    return bytes(data)


def value_like(value: Any) -> SearchStrategy[Any]:
    """Values to put in the place of one: any odd one, or near it."""
    odd = st.sampled_from(_VALUES)
    if value is None or isinstance(value, bool):
        return odd
    if isinstance(value, int | float):
        return odd | st.sampled_from((value + 1, -value, value * 1000, str(value), [value]))
    if isinstance(value, str):
        return odd | st.sampled_from((value + "x", value * 2, value[:-1], [value]))
    return odd | st.just([value]) | st.just({"a": value})


def _slots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields each place in a document, as a container and a key or an index."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list) and inner:
            yield from _slots(inner)


def mutate(draw: DrawFn, document: dict[str, Any] | list[Any], *, most: int = 3) -> Any:
    """Change up to three values: another one, none, a new field, a field twice, a swap."""
    root = [document]
    for _ in range(draw(st.integers(1, most))):
        slots = [*_slots(root)]
        container, key = draw(st.sampled_from(slots) | st.sampled_from(slots[-3:]))
        match draw(st.sampled_from(("replace", "replace", "remove", "add", "twice", "swap"))):
            case "remove" if container is not root:
                del container[key]
            case "add" if isinstance(container, dict):
                container[draw(st.sampled_from(("x", "", "\0", "version")))] = 1
            case "add" if container is not root:
                container.append(container[key])
            case "twice" if isinstance(container, dict):
                container[f"{key}{_TWICE}"] = copy.deepcopy(draw(value_like(container[key])))
            case "swap":
                other, place = draw(st.sampled_from(slots))
                if other is not root and place in (other if isinstance(other, dict) else ()):
                    container[key] = copy.deepcopy(other[place])
            case _:
                container[key] = copy.deepcopy(draw(value_like(container[key])))
    return root[0]


def written(document: Any, *, indent: int | None = None) -> bytes:
    text = json.dumps(document, indent=indent).replace(_TWICE, "")
    for name, literal in _RAW.items():
        text = text.replace(json.dumps(name), literal, 1)
    return text.encode()


@st.composite
def _document(draw: DrawFn, content: bytes) -> bytes:
    return written(mutate(draw, json.loads(content)), indent=2)


def json_file(content: bytes) -> SearchStrategy[bytes]:
    """A JSON file with other values, or with other bytes."""
    return _document(content) | _document(content) | raw(content)


@st.composite
def _lines(draw: DrawFn, content: bytes) -> bytes:
    lines = content.splitlines()
    place = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(("value", "value", "value", "drop", "repeat", "blank"))):
        case "value":
            lines[place] = written(mutate(draw, json.loads(lines[place])))
        case "drop":
            del lines[place]
        case "repeat":
            lines.insert(place, lines[place])
        case _:
            lines.insert(place, b"")
    return b"".join(line + b"\n" for line in lines)


def json_lines(content: bytes) -> SearchStrategy[bytes]:
    """A file of JSON lines: another value in one, a line too many or too few, other bytes."""
    return _lines(content) | raw(content)
