"""export: files that other software reads, checked against the run's own network."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

import dial
from dial import DialError, Run
from dial.deployment import export as exporting

from ..commands import run as command
from ..conftest import CLASSES

SUFFIXES = ["onnx", "pt2", "safetensors"]


@pytest.fixture(scope="module")
def exported(finished: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exported")
    files = {suffix: folder / f"network.{suffix}" for suffix in SUFFIXES}
    for file in files.values():
        done = dial.export(finished, file)
        assert 0 <= done.difference <= 1e-4
        assert done.images == 16
    return files


@pytest.fixture(scope="module")
def images(finished: Run) -> Tensor:
    return finished.samples()


def logits(finished: Run, images: Tensor) -> np.ndarray:
    with torch.no_grad():
        return finished.network(images).numpy()


def test_onnx_runtime_agrees(exported: dict[str, Path], finished: Run, images: Tensor) -> None:
    session = onnxruntime.InferenceSession(exported["onnx"])
    for count in (1, 3, 16):
        (found,) = session.run(["logits"], {"images": images[:count].numpy()})
        np.testing.assert_allclose(found, logits(finished, images[:count]), atol=1e-4)


def test_onnx_describes_its_input(exported: dict[str, Path], finished: Run) -> None:
    told = {p.key: p.value for p in onnx.load(exported["onnx"]).metadata_props}
    assert json.loads(told["classes"]) == [*CLASSES]
    assert json.loads(told["preprocessing"])["size"] == finished.model.preprocessing.size
    assert told["backbone"] == "timm:test_resnet"


def test_pt2_runs_where_this_package_is_not(
    exported: dict[str, Path], finished: Run, images: Tensor, tmp_path: Path
) -> None:
    torch.save(images, tmp_path / "images.pt")
    code = (
        "import sys; sys.modules['dial'] = None\nimport torch\n"
        "program = torch.export.load(sys.argv[1]).module()\n"
        "torch.save(program(torch.load(sys.argv[2])).detach(), sys.argv[3])"
    )
    paths = exported["pt2"], tmp_path / "images.pt", tmp_path / "logits.pt"
    subprocess.run([sys.executable, "-c", code, *map(str, paths)], check=True)
    found = torch.load(tmp_path / "logits.pt").numpy()
    np.testing.assert_allclose(found, logits(finished, images), atol=1e-4)


def test_safetensors_fit_the_plain_architecture(
    exported: dict[str, Path], finished: Run, images: Tensor
) -> None:
    plain = timm.create_model("test_resnet", num_classes=3).eval()
    plain.load_state_dict(load_file(exported["safetensors"]))
    with torch.no_grad():
        np.testing.assert_allclose(plain(images).numpy(), logits(finished, images), atol=1e-4)
    with safe_open(exported["safetensors"], framework="np") as file:
        assert json.loads(file.metadata()["classes"]) == [*CLASSES]


def test_a_network_that_differs_is_not_written(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(*arguments: object) -> object:
        return lambda images: reader(*arguments)(images) + 2e-4

    reader = exporting.FORMATS[".pt2"].read
    changed = exporting.FORMATS[".pt2"]._replace(read=spoil)
    monkeypatch.setitem(exporting.FORMATS, ".pt2", changed)
    with pytest.raises(DialError, match=r"within 0.0001 .* a difference of 0.0002"):
        dial.export(finished, tmp_path / "x.pt2")
    assert not [*tmp_path.iterdir()]


def test_images_of_ones_own_to_compare_on(
    finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    done = dial.export(finished, tmp_path / "x.safetensors", images=[str(folders[1])])
    assert done.images == 32
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").touch()
    with pytest.raises(DialError, match="none that can be read"):
        dial.export(finished, tmp_path / "x.safetensors", images=[str(tmp_path / "bad")])


def test_the_command_exports(finished: Run, tmp_path: Path) -> None:
    result = command("export", finished.folder, tmp_path / "x.safetensors")
    assert result.returncode == 0
    assert "compared on 16 real images: outputs differ by at most" in result.stdout
    told = command("export", finished.folder, tmp_path / "x.safetensors", "--json")
    assert json.loads(told.stdout)["difference"] <= 1e-4


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    wanted = rf'the package {package}, got .*not installed; fix: pip install "dial-da\[export\]"'
    with pytest.raises(DialError, match=wanted):
        dial.export(finished, tmp_path / "x.onnx")
    assert not [*tmp_path.iterdir()]


def test_an_unknown_suffix_is_an_error(finished: Run, tmp_path: Path) -> None:
    with pytest.raises(
        DialError, match=r"suffixes \.onnx .*, \.pt2 .*, \.safetensors .*got .*x\.h5"
    ):
        dial.export(finished, tmp_path / "x.h5")
