"""The examples of the documents run."""

import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dial
from dial.cli import app
from dial.pipeline import adapt

from .conftest import SETTINGS

ROOT = Path(__file__).resolve().parents[1]
DOCS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
READERS_OWN = "photos", "renderings", "shopfloor", "drawings", "camera1", "camera2"
KNOWN_DATA = 'data="data"'  # these examples need the known data sets


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: tuple[Path, Path]
) -> None:
    """The reader's own folders are small ones, for which a small network is enough."""
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for example in examples:
        if any(f'"{name}"' in example for name in READERS_OWN):
            for name in READERS_OWN:
                shutil.copytree(folders[0], tmp_path / name, dirs_exist_ok=True)
            shutil.copy(next(folders[0].rglob("*.png")), tmp_path / "one.jpg")
            monkeypatch.setattr(dial, "adapt", partial(adapt, **SETTINGS))
        if KNOWN_DATA not in example:
            exec(compile(example, str(page), "exec"), {})  # noqa: S102


@pytest.mark.slow
def test_the_guide_to_a_model_that_is_there_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example and every command of the page, one after the other, with fewer steps."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "model-you-have.md").read_text(encoding="utf-8")
    outcomes = []
    for kind, block in re.findall(r"```(python|console)\n(.*?)```", text, re.DOTALL):
        if kind == "python":
            exec(compile(block, "model-you-have.md", "exec"), {})  # noqa: S102
            continue
        for line in block.strip().splitlines():
            words = line.replace("--steps 200", "--steps 6").split()
            assert words[0] == "dial"
            outcome = CliRunner().invoke(app, words[1:], catch_exceptions=False)
            assert outcome.exit_code == 0, f"{line}\n{outcome.output}"
            outcomes.append(outcome.output)
    assert len(outcomes) == 7
    assert "No drift" in outcomes[-1]
    rows = (tmp_path / "predictions.csv").read_text().splitlines()
    assert len(rows) == 901


def test_the_reference_of_the_command_is_what_the_command_has() -> None:
    command = [sys.executable, "-m", "typer", "dial.cli", "utils", "docs", "--name", "dial"]
    made = subprocess.run(
        [*command, "--title", "The command"], capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    assert page.strip() == made.stdout.strip(), "run `make docs`"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / link).exists(), f"{link} in {page.name}"


def test_the_version_is_the_same_everywhere() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", changes, re.MULTILINE)[0] == dial.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [dial.__version__]
