"""Compiled training steps: the same training, and one error where nothing can compile."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import dial
from dial import DialError
from dial.training.compilation import Compilation


def test_parts_are_compiled_in_steps_alone() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x, parts = torch.randn(5, 3), [*network]
    expected, names = network(x), list(network.state_dict())
    compilation = Compilation(network, classifier="2", backend="aot_eager")
    with compilation.step():
        replaced = [part is not own for part, own in zip(network, parts, strict=True)]
        assert replaced == [True, False, False]
        torch.testing.assert_close(network(x), expected)
    assert all(part is own for part, own in zip(network, parts, strict=True))
    assert list(network.state_dict()) == names


def test_no_compiler_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DialError, match=r"wanted a C\+\+ compiler for --compile, got none on the"):
        Compilation(nn.Sequential(nn.Linear(3, 4)), classifier="0")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings(  # the compiler trips over torch's own
    "ignore:.torch.jit.script_method:DeprecationWarning",
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
)
def test_a_compiled_run_ends_like_another(tmp_path: Path) -> None:
    pair = "digits:optdigits", "digits:mnist"
    some: dict[str, Any] = {"steps": 2, "batch_size": "8+8", "holdout": 0}
    some |= {"report": False, "quiet": True}
    plain = dial.adapt(*pair, out=tmp_path / "plain", **some)
    fast = dial.adapt(*pair, out=tmp_path / "fast", compile=True, **some)
    own, other = (load_file(run.folder / "model.safetensors") for run in (plain, fast))
    for name, tensor in own.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-3, atol=1e-4)
