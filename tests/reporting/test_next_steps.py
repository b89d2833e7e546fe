"""Lines to copy: they name the run as a shell wants it, and the command takes them."""

import shlex
from pathlib import Path

import pytest
import typer

from dial.cli import app
from dial.reporting.next_steps import next_steps, repeat


@pytest.mark.parametrize("folder", ["run", "my run", "a'b; rm -rf ~", "$(x)", "<b>"])
def test_a_shell_reads_the_folder_as_one_word(folder: str) -> None:
    for step in next_steps(Path(folder), measured=False):
        assert folder in shlex.split(step.line)
    assert str(Path(folder) / "config.json") in shlex.split(repeat(Path(folder)))


def test_only_what_is_not_measured_is_to_be_measured() -> None:
    lines = [step.line for step in next_steps(Path("run"), measured=False)]
    assert lines[0] == "dial label run"
    assert [step.line for step in next_steps(Path("run"), measured=True)] == lines[1:]


def test_the_command_takes_every_line() -> None:
    commands = typer.main.get_command(app)
    lines = [step.line for step in next_steps(Path("run"), measured=False)]
    for line in (*lines, repeat(Path("run"))):
        program, name, *arguments = shlex.split(line)
        assert program == "dial"
        command = commands.commands[name]  # type: ignore[attr-defined]
        context = command.make_context(name, arguments, resilient_parsing=False)
        assert context.params
