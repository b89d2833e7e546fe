"""The number in a reference's name."""

from dial.errors import DialError


def read_number(name: str, variant: str, *, about: str, example: str) -> float:
    """Returns the number of `name:variant`, such as `student:4`.

    Args:
        name: the reference's name.
        variant: what follows the colon.
        about: the number's meaning and range, for the error.
        example: a sound number.

    Raises:
        DialError: it is no number.
    """
    try:
        return float(variant)
    except ValueError:
        raise DialError(
            wanted=f"a reference's name, or {name}:{about}",
            got=repr(f"{name}:{variant}"),
            fix=f"use {name}, or {name}:{example}",
        ) from None
