"""The command of a report makes the same settings again."""

import inspect
import json
import shlex
from typing import Any

import pytest

from dial import cli
from dial.data.datasets import open_domain
from dial.pipeline import _choose
from dial.reporting import repetition
from dial.training import settings


def config(**changes: Any) -> dict[str, Any]:
    preset = changes.pop("preset", "digits_cnn")
    chosen = settings.preset(preset, **changes)
    plain = json.loads(json.dumps(chosen.to_dict()))
    return {"source": "digits:mnist", "target": "digits:optdigits", "settings": plain}


def parsed(command: str) -> dict[str, Any]:
    words = shlex.split(command)
    assert words[:4] == ["dial", "adapt", "digits:mnist", "digits:optdigits"]
    given: dict[str, Any] = {}
    for name, value in zip(words[4::2], words[5::2], strict=True):
        given[name[2:].replace("-", "_")] = value
    assert given.pop("out") == "RUN"
    for name, kind in {"steps": int, "seed": int, "epochs": int, "image_size": int}.items():
        given |= {name: kind(given[name])} if name in given else {}
    for name in ("lr", "entropy", "warmup"):
        given |= {name: float(given[name])} if name in given else {}
    return given


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps": 200, "lr": 0.01, "seed": 7},
        {"method": "source_only", "batch_size": "8+8"},
        {"options": {"entropy": 0.3, "reference": "laplace"}},
        {"preset": "efficientnet_lite0", "image_size": 96, "steps": 10},
        {"preset": "paper-inception-bn", "schedule": "cosine"},
    ],
)
def test_the_command_gives_the_settings_back(changes: dict[str, Any]) -> None:
    wanted = config(**changes)
    given = parsed(repetition.repeat_command(wanted, {}, out="RUN"))
    source = open_domain("digits:mnist")
    chosen = _choose(source, given.pop("preset"), given)
    assert json.loads(json.dumps(chosen.to_dict())) == wanted["settings"]


def test_what_the_command_cannot_say_becomes_a_call() -> None:
    for changes in ({"momentum": 0.5}, {"method": "dan", "options": {"weight": 0.3}}):
        text = repetition.repeat_command(config(**changes), {"data": "there"}, out="RUN")
        assert text.startswith("import dial\n\ndial.adapt(\n    'digits:mnist',")
        compile(text, "call", "exec")
        assert "data='there'" in text


def test_paths_are_quoted() -> None:
    wanted = config() | {"source": "my photos; rm -rf ~"}
    extra = {"data": "a b", "unlabelled": True}
    text = repetition.repeat_command(wanted, extra, out="RUN")
    assert "'my photos; rm -rf ~'" in text
    assert text.endswith("--data 'a b' --unlabelled")


def test_the_command_has_all_these_options() -> None:
    assert {*repetition.COMMAND, *repetition.METHOD} <= set(
        inspect.signature(cli.adapt_command).parameters
    )
