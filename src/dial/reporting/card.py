"""The model card of a finished run, from what its folder says, in the Hugging Face hub's format."""

import re
from collections.abc import Iterable
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from dial import files
from dial.backbones import is_object
from dial.deployment.runs import read_records
from dial.errors import missing_extra
from dial.reporting.candidates import about_kept
from dial.reporting.places import shareable_names, shareable_settings
from dial.training.run_folder import read_config

NAME = "MODEL_CARD.md"
_NAMED = 100  # classes that are listed by name
_MARKUP = re.compile(r"[\\`*_\[\]|~$#@]|:(?=//)|(?<=www)\.", re.IGNORECASE)
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def write(folder: Path) -> Path:
    """Write the card of a finished run of one target into its folder. Returns the card's path."""
    path = folder / NAME
    files.write_text(path, render(folder))
    return path


def render(folder: Path, *, hub: bool = False) -> str:
    """Returns the card of a finished run of one target, as Markdown.

    All texts in it are escaped, and no path in it is absolute.

    Args:
        folder: the run's.
        hub: whether the card is for a folder that timm reads, in place of the run's.

    Raises:
        DialError: no finished run, or a package of the extra is missing.
    """
    result, _ = read_records(folder)
    config = read_config(folder / "config.json")
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise missing_extra(error, "report") from error
    environment = Environment(
        autoescape=False,  # noqa: S701 - Markdown, where `finalize` escapes every text
        finalize=_plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["percent"] = _percent
    missing = dict.fromkeys(("source_images", "estimated_interval", "no_estimate"))
    missing |= dict.fromkeys(("estimate_doubt", "absent_classes", "warnings"))
    template = resources("dial.reporting").joinpath("card.md.jinja").read_text(encoding="utf-8")
    classes: list[str] = config["classes"]
    return environment.from_string(template).render(
        hub=hub,
        result=missing | result,
        config=config,
        source=shareable_names(result["source"]),
        target=shareable_names(result["target"]),
        classes=classes,
        named=classes[:_NAMED],
        unnamed=len(classes[_NAMED:]),
        goes_on="from" in config,
        labelled=config.get("input", {}).get("labelled") is not None,
        kept=about_kept(result),
        own=is_object(result["backbone"]),
        settings=_texts(shareable_settings(config["settings"])),
        counted=_counted,
    )


def _plain(value: Any) -> Any:
    """Returns a value as Markdown that shows it as it is, in one line; numbers stay.

    >>> _plain("<b>*x*|y")
    '&lt;b&gt;\\\\*x\\\\*\\\\|y'
    """
    if not isinstance(value, str):
        return value
    text = "".join(each if each.isprintable() else "\ufffd" for each in value)
    text = _MARKUP.sub(r"\\\g<0>", text)
    return "".join(_ENTITIES.get(each, each) for each in text)


def _texts(settings: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in settings]


def _counted(count: int | None) -> str:
    return "" if count is None else f", {count:,} images"


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"
