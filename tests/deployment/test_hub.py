"""export_folder: what timm loads is the run's network, with classes and preprocessing."""

import json
import math
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config
from torch import nn

from dial import DialError, Run
from dial.data.transforms import Preprocessing
from dial.deployment import hub
from dial.deployment.model import Model

from ..commands import run as command
from ..conftest import CLASSES
from ..oracles import network_input


@pytest.fixture(scope="module")
def folder(finished: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "folder"
    done = hub.export_folder(finished, folder, card="# A card\n")
    assert 0 <= done.difference <= 1e-4
    assert done.images == 16
    return folder


def test_timm_loads_the_folder(folder: Path, finished: Run) -> None:
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "model.safetensors", "README.md",
    }  # fmt: skip
    assert (folder / "README.md").read_text() == "# A card\n"
    told = json.loads((folder / "config.json").read_text())
    assert told["architecture"] == "test_resnet"
    assert told["num_classes"] == 3
    assert told["label_names"] == [*CLASSES]
    assert not {"license", "url", "hf_hub_id", "tag"} & {*told["pretrained_cfg"]}
    network = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    images = finished.samples()
    with torch.no_grad():
        torch.testing.assert_close(network(images), finished.network(images), atol=1e-4, rtol=0)


def test_timms_own_transform_gives_the_same_labels(
    folder: Path, finished: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    network = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    transform = create_transform(**resolve_data_config(model=network))
    paths = sorted(folders[1].rglob("*.png"))
    for number, path in enumerate(paths):  # of many shapes, and larger than the input
        wide = Image.open(path).resize((70 + 5 * number, 90), Image.Resampling.BICUBIC)
        wide.save(tmp_path / f"{number}.png")
    files = [tmp_path / f"{number}.png" for number in range(len(paths))]
    theirs = torch.stack([transform(Image.open(path)) for path in files])
    ours = torch.stack([network_input(path, finished.model.preprocessing) for path in files])
    assert theirs.shape == ours.shape
    assert (theirs - ours).abs().mean() < 0.02
    with torch.no_grad():
        assert torch.equal(network(theirs).argmax(1), finished.network(ours).argmax(1))


@pytest.mark.parametrize("ratio", [0.875, 0.9, 0.95, 1.0])
def test_timm_squeezes_images_to_the_size_before_the_crop(ratio: float) -> None:
    for size in range(16, 700):
        preprocessing = Preprocessing(size=size, resize=round(size / ratio))
        crop = hub.input_of(preprocessing)["crop_pct"]
        assert math.floor(size / crop) == preprocessing.resize


def of(finished: Run, network: nn.Module, name: str) -> Run:
    model = Model(network, CLASSES, finished.model.preprocessing, name)
    return Run(finished.folder, model, finished.result, finished.history)


def test_a_network_that_is_not_timms_is_an_error(finished: Run, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(DialError, match=r"a network of timm.* got object:Sequential.*FILE\.onnx"):
        hub.export_folder(of(finished, network, "object:Sequential"), tmp_path / "x", card="")
    assert not [*tmp_path.iterdir()]


def test_layers_that_timms_architecture_lacks_are_an_error(finished: Run, tmp_path: Path) -> None:
    network = timm.create_model("test_resnet", num_classes=3)
    network.bn1 = nn.Sequential(nn.Conv2d(32, 32, 1), network.bn1)
    with pytest.raises(DialError, match=r"timm's test_resnet without changes.*Missing key"):
        hub.export_folder(of(finished, network, "timm:test_resnet"), tmp_path / "x", card="")
    assert not [*tmp_path.iterdir()]


def test_weights_of_a_network_made_for_one_size(finished: Run, tmp_path: Path) -> None:
    network = timm.create_model("test_vit", num_classes=3, img_size=32)
    done = hub.export_folder(of(finished, network, "timm:test_vit"), tmp_path / "x", card="")
    assert done.difference <= 1e-4


def test_the_default_network(finished: Run, tmp_path: Path) -> None:
    network = timm.create_model("tf_efficientnet_lite0", num_classes=3)
    done = hub.export_folder(of(finished, network, "efficientnet_lite0"), tmp_path / "x", card="")
    assert done.difference <= 1e-4


def test_the_folder_of_a_run_is_left_alone(finished: Run) -> None:
    before = (finished.folder / "config.json").read_bytes()
    with pytest.raises(DialError, match=r"a folder of its own .* which holds a run"):
        hub.export_folder(finished, finished.folder, card="")
    assert (finished.folder / "config.json").read_bytes() == before


def test_the_command_writes_the_folder_with_a_card(finished: Run, tmp_path: Path) -> None:
    result = command("export", finished.folder, "--hub-folder", tmp_path / "x")
    assert result.returncode == 0, result.stderr
    assert "compared on 16 real images" in result.stdout
    card = (tmp_path / "x" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: timm\npipeline_tag: image-classification\n")
    both = command("export", finished.folder, tmp_path / "x.onnx", "--hub-folder", tmp_path / "y")
    assert both.returncode == 2
    assert "wanted either FILE or --hub-folder DIR, got both" in both.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
