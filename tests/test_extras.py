"""The core installs alone, and what is not installed is named with the extra that brings it.

`layers/test_light_core.py` has the same in seconds, where packages are hidden, not absent.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # installs torch
ROOT = Path(__file__).resolve().parents[1]
LOOP = re.compile(r"```python\n(import torch\n.*?dial\.fold.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the core alone."""
    folder = tmp_path_factory.mktemp("core")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--constraint", str(constraints), str(ROOT)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution" in made.stderr or "connection" in made.stderr.lower():
        pytest.skip(f"pip reaches no packages here: {made.stderr.splitlines()[-1]}")
    assert made.returncode == 0, made.stderr
    return python


def test_the_core_needs_torch_and_numpy_and_runs_the_loop_of_the_readme(core: Path) -> None:
    command = [core, "-m", "pip", "list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    for package in ("typer", "rich", "timm", "scikit-learn", "torchvision", "matplotlib", "onnx"):
        assert package not in listing.stdout.split()
    (loop,) = LOOP.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    subprocess.run([core, "-W", "error", "-c", loop], check=True, cwd=core.parent)


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import dial; dial.adapt('a', 'b', out='c')", "command"),
        ("import dial; dial.predict", "command"),
        ("import dial; dial.build('efficientnet_lite0')", "backbones"),
        ("import dial; dial.report('run')", "report"),
        ("import dial; dial.sklearn", "sklearn"),
        ("import dial.sklearn", "sklearn"),
    ],
)
def test_what_is_missing_is_named_with_its_extra(code: str, extra: str, core: Path) -> None:
    made = subprocess.run([core, "-c", code], capture_output=True, text=True, check=False)
    assert made.returncode == 1
    assert f'fix: pip install "dial-da[{extra}]"' in made.stderr


def test_the_command_without_its_extra_is_one_message(core: Path) -> None:
    for command in ([core.parent / "dial", "--help"], [core, "-m", "dial", "--help"]):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 2
        assert made.stderr.startswith("dial: error: wanted the package typer")
        assert 'pip install "dial-da[command]"' in made.stderr
        assert made.stderr.count("\n") == 1
