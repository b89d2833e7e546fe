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


def test_importing_dial_is_light_and_hooks_into_nothing() -> None:
    done = run(
        "import sys\n"
        "finders = list(sys.meta_path)\n"
        "import dial\n"
        "assert not {'torch', 'torchvision', 'numpy'} & set(sys.modules)\n"
        "assert sys.meta_path == finders\n"
    )
    assert done.returncode == 0, done.stderr


def test_lets_torchvision_and_timm_in() -> None:
    done = run(
        "from dial.torchvision_guard import prepare_torchvision\n"
        "prepare_torchvision()\n"
        "prepare_torchvision()\n"
        "import timm\n"
        "from torchvision.transforms import v2\n"
        "import torchvision\n"
        "torchvision.models.resnet18()\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "script",
    [
        "import dial.data.transforms",
        "import dial; dial.build('efficientnet_lite0', weights='none')",
        "import dial; dial.build('timm:test_resnet', weights='none')",
        "import dial; dial.build('torchvision:resnet18', weights='none')",
    ],
)
def test_rooms_that_import_torchvision_call_it_first(script: str) -> None:
    done = run(script)
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
        prepare + "from dial import torchvision_guard\n"
        "torchvision_guard.prepare_torchvision()\n"
        "import torchvision\n"
        f"assert bool(torchvision_guard._declarations) is {not healthy}\n",
        root,
    )
    assert done.returncode == 0, done.stderr


def test_does_nothing_after_torchvision_or_without_it() -> None:
    done = run(
        "import sys, types\n"
        "sys.modules['torchvision'] = types.ModuleType('torchvision')\n"
        "from dial import torchvision_guard\n"
        "torchvision_guard.prepare_torchvision()\n"
        "assert not torchvision_guard._declarations and 'torch' not in sys.modules\n"
    )
    assert done.returncode == 0, done.stderr
    done = run(
        "import importlib.machinery\n"
        "from dial import torchvision_guard\n"
        "importlib.machinery.PathFinder.find_spec = lambda *a, **k: None\n"
        "torchvision_guard.prepare_torchvision()\n"
        "try:\n    import torchvision\nexcept ImportError as e:\n    print('absent')\n"
    )
    assert done.stdout.strip() == "absent", done.stderr
