"""Places as a page names them: whoever gets it need not learn where its maker keeps files."""

import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

_JOINS = re.compile(r"( ?\+ ?)")  # between the names of several domains


def is_shareable(place: str) -> bool:
    """Returns whether a place says nothing about a machine: a name, or a path below some folder.

    >>> [is_shareable(each) for each in ("runs/one", "office31:amazon", "/home/ada", "../ada")]
    [True, True, False, False]
    """
    path = PurePosixPath(place)
    is_absolute = path.is_absolute() or PureWindowsPath(place).is_absolute()
    return not (is_absolute or place.startswith("~") or ".." in path.parts)


def shareable(place: str) -> str:
    """Returns a place as it is, or only its last part if the rest is nobody's business.

    >>> shareable("runs/one"), shareable("/home/ada/runs/one"), shareable("/home/ada/photos/")
    ('runs/one', 'one', 'photos')
    """
    if is_shareable(place):
        return place
    return (PureWindowsPath(place) if "\\" in place else PurePosixPath(place)).name


def shareable_names(names: str) -> str:
    """Returns the names of several domains, joined by plus signs, each as `shareable`.

    >>> shareable_names("/home/ada/photos + /home/ada/scans")
    'photos + scans'
    """
    return "".join(map(shareable, _JOINS.split(names)))


def shareable_settings(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """Returns the settings of a config.json that have a value; no epochs beside steps.

    The method's own are last, and places are each as `shareable`.
    """
    general = {name: value for name, value in settings.items() if name != "options"}
    if general.get("steps") is not None:
        general.pop("epochs", None)
    pairs = (*general.items(), *settings["options"].items())
    return [
        (name, shareable(value) if isinstance(value, str) else value)
        for name, value in pairs
        if value is not None
    ]
