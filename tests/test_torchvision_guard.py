"""The guard in fresh processes: with torchvision as it is here, healthy, broken and absent."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(script: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    prologue = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    return subprocess.run(
        [sys.executable, "-c", prologue + script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def fake_torchvision(root: Path, *, healthy: bool) -> Path:
    """A torchvision whose import registers against `nms`, and whose library is there or not."""
    package = root / "torchvision"
    package.mkdir()
    defines = (
        "lib = torch.library.Library('torchvision', 'DEF')\nlib.define('nms(Tensor a) -> Tensor')"
    )
    (package / "__init__.py").write_text(
        f"import torch\n{defines if healthy else ''}\n"
        "lib2 = torch.library.Library('torchvision', 'IMPL', 'Meta')\n"
        "lib2.impl('nms', lambda *a: a[0])\n"
    )
    return root


def test_importing_dial_is_light_and_lets_torchvision_and_timm_in() -> None:
    done = run(
        "import sys, dial\n"
        "assert not {'torch', 'torchvision', 'numpy'} & set(sys.modules)\n"
        "import timm\n"
        "from torchvision.transforms import v2\n"
        "import torchvision\n"
        "torchvision.models.resnet18()\n"
        "assert not any('BeforeTorchvision' in type(f).__name__ for f in sys.meta_path)\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("healthy", [True, False])
def test_declares_operators_only_where_they_are_missing(tmp_path: Path, healthy: bool) -> None:
    root = fake_torchvision(tmp_path, healthy=healthy)
    if healthy:  # as if the compiled library had loaded: the operator is there beforehand
        (root / "torchvision" / "__init__.py").write_text("import torch\n")
    prepare = (
        "import torch\n"
        "lib = torch.library.Library('torchvision', 'DEF')\n"
        "lib.define('nms(Tensor a, Tensor b, float c) -> Tensor')\n"
        if healthy
        else ""
    )
    done = run(
        prepare + "import dial, torchvision\n"
        "from dial import torchvision_guard\n"
        f"assert bool(torchvision_guard._declared) is {not healthy}\n",
        root,
    )
    assert done.returncode == 0, done.stderr


def test_does_nothing_after_torchvision_or_without_it(tmp_path: Path) -> None:
    done = run(
        "import sys, types\n"
        "sys.modules['torchvision'] = types.ModuleType('torchvision')\n"
        "import dial\n"
        "assert not any('BeforeTorchvision' in type(f).__name__ for f in sys.meta_path)\n"
    )
    assert done.returncode == 0, done.stderr
    done = run(
        "import importlib.machinery, sys, dial\n"
        "importlib.machinery.PathFinder.find_spec = lambda *a, **k: None\n"
        "try:\n    import torchvision\nexcept ImportError as e:\n    print('absent')\n"
    )
    assert done.stdout.strip() == "absent", done.stderr
