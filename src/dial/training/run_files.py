"""What the JSON files of a run's folder hold, and result.json read as that."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NotRequired, TypedDict, get_type_hints

from dial.files.records import read_json
from dial.training.settings import Settings

_FOLDER = re.compile(r"(?!\.)[\w.-]+")  # of one of several targets, in the run's own
_BY_NAME = {"Method": str, "Backbone": str, "nn": SimpleNamespace(Module=str)}  # in config.json
StoredSettings = TypedDict(  # type: ignore[misc]  # by the fields of the settings
    "StoredSettings", get_type_hints(Settings, localns=_BY_NAME), total=False
)


class Input(TypedDict, total=False):
    """Where the images were, and what else was given."""

    data: str | None
    unlabelled: bool | None
    source: str | list[str] | None
    target: str | list[str] | None
    model: str | None
    labelled: str | None


class StoredExecution(TypedDict, total=False):
    """What of the execution a repeated run takes over."""

    device: str
    devices: int
    precision: str
    skip_bad: bool


class Search(TypedDict):
    """What identifies a search."""

    tune: str
    validator: str
    grid: list[float]


class Config(TypedDict, total=False):
    """What config.json holds; older versions of dial wrote less of it."""

    dial: str
    torch: str
    python: str
    source: str | list[str] | None
    target: str | list[str]
    classes: list[str]
    settings: StoredSettings
    automatic: list[str]
    input: Input
    execution: StoredExecution
    labelled: list[str] | None
    search: NotRequired[Search]


class ScoredCandidate(TypedDict):
    """A predictor that a run chose from."""

    name: str
    score: float
    target_accuracy: NotRequired[float | None]


class Trial(TypedDict):
    """A row of the table of a search; the setting's value comes under the setting's name."""

    score: float | None
    outcome: str
    seconds: float | None


class Result(TypedDict):
    """What result.json holds; older versions of dial wrote less of it, and methods add more."""

    method: str
    backbone: str
    reference: str | None
    source: str
    target: str
    seed: int
    epochs: int
    steps: NotRequired[int]
    seconds: float
    target_accuracy: float | None
    estimated_accuracy: NotRequired[float | None]
    estimated_interval: NotRequired[tuple[float, float] | None]
    estimate_doubt: NotRequired[str | None]
    no_estimate: NotRequired[str | None]
    warnings: NotRequired[list[str]]
    predictor: NotRequired[str | None]
    candidates: NotRequired[list[ScoredCandidate] | None]
    absent_classes: NotRequired[list[str] | None]
    mixing: NotRequired[dict[str, float] | None]
    chosen: NotRequired[dict[str, float | str]]
    trials: NotRequired[list[Trial]]
    targets: NotRequired[dict[str, "Result"]]


class Epoch(TypedDict):
    """What a line of metrics.jsonl has at least; all that it has are numbers."""

    epoch: int
    step: int


def read_result(folder: Path) -> dict[str, Any]:
    """Returns what a run's result.json holds.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    result: dict[str, Any] = read_json(folder / "result.json", Result)
    strange = [name for name in result.get("targets", ()) if not _FOLDER.fullmatch(name)]
    if strange:
        raise ValueError(f"the target {strange[0]!a}")
    return result
