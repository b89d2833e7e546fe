"""Models on disk: the plain network itself, read back without any DA-layer code."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import dial
from dial import DialError, backbones
from dial.backbones import Backbone
from dial.data.transforms import Preprocessing
from dial.deployment import model as models
from dial.deployment.model import Model

CLASSES = tuple("abcde")
DIGITS = Preprocessing.for_digits()


def adapted(backbone: Backbone, images: Tensor) -> nn.Module:
    """A folded network whose statistics and affine leave their traces."""
    network = backbone.convert()
    dial.calibrate(network, [images], "target")
    for module in network.modules():
        if isinstance(module, dial.DomainAlignment) and module.weight is not None:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return dial.fold(network, fuse=False)


@torch.no_grad()
def logits(network: nn.Module, images: Tensor) -> Tensor:
    return network.eval()(images)  # type: ignore[no-any-return]


def bare() -> nn.Module:
    """A network that lacks what folding adds: a bias, an affine, statistics."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4, affine=False, track_running_stats=False),
        nn.Flatten(),
        nn.Linear(4 * 26 * 26, 5, bias=False),
    )


def test_the_file_is_the_state_dict_of_the_backbones_own_architecture(tmp_path: Path) -> None:
    backbone = backbones.create("digits_cnn", num_classes=5)
    images = torch.rand(8, 1, 28, 28)
    network = adapted(backbone, images)
    models.save(tmp_path / "m.safetensors", Model(network, CLASSES, DIGITS, backbone.name))

    own = dial.build("digits_cnn", num_classes=5, weights="none")
    own.load_state_dict(load_file(tmp_path / "m.safetensors"))
    torch.testing.assert_close(logits(own, images), logits(network, images))
    loaded = models.load(tmp_path / "m.safetensors")
    assert torch.equal(logits(loaded.network, images), logits(network, images))
    assert (loaded.classes, loaded.preprocessing) == (CLASSES, DIGITS)
    assert not any(module.training for module in loaded.network.modules())


def former_file(path: Path, *, version: int = 2) -> nn.Module:
    """A file as the former version wrote it, and the network that it holds."""
    network = dial.build("digits_cnn", num_classes=5)
    norm = nn.BatchNorm1d(5)
    norm.running_mean, norm.running_var = torch.randn(5), torch.rand(5) + 0.5
    nn.init.uniform_(norm.weight)
    network.classifier = nn.Sequential(network.classifier, norm)
    about = {
        "version": version,
        "backbone": "digits_cnn",
        "classes": CLASSES,
        "preprocessing": DIGITS.to_dict(),
        "append_after": ["classifier"],
    }
    save_file(network.state_dict(), path, metadata={"dial": json.dumps(about)})
    return network


def test_files_of_the_former_version_are_read(tmp_path: Path) -> None:
    network = former_file(tmp_path / "m.safetensors")
    loaded = models.load(tmp_path / "m.safetensors")
    images = torch.rand(8, 1, 28, 28)
    expected = logits(network, images)
    torch.testing.assert_close(logits(loaded.network, images), expected, atol=1e-5, rtol=0)
    assert isinstance(loaded.network.classifier, nn.Linear)
    models.save(tmp_path / "new.safetensors", loaded)
    again = models.load(tmp_path / "new.safetensors")
    assert torch.equal(logits(again.network, images), logits(loaded.network, images))


@pytest.mark.parametrize("version", [1, 4])
def test_files_of_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    former_file(tmp_path / "m.safetensors", version=version)
    with pytest.raises(DialError, match=rf"finished model .*, of version 3, got version {version}"):
        models.load(tmp_path / "m.safetensors")


def test_loading_runs_no_da_layer_code(tmp_path: Path) -> None:
    former_file(tmp_path / "former.safetensors")
    models.save(tmp_path / "new.safetensors", models.load(tmp_path / "former.safetensors"))
    code = (
        "import sys, torch\nfrom pathlib import Path\nfrom dial.deployment import model\n"
        "for path in sys.argv[1:]:\n"
        "    model.predict(model.load(Path(path)).network, [torch.rand(2, 1, 28, 28)])\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('dial.')}\n"
        "assert 'deployment' in rooms\n"
        "print(sorted(rooms & {'layers', 'references', 'methods', 'training'}))"
    )
    files = [str(tmp_path / f"{name}.safetensors") for name in ("former", "new")]
    command = [sys.executable, "-c", code, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_folding_added_is_there_again_after_loading(tmp_path: Path) -> None:
    own = Backbone.of(bare(), append_after=("3",))
    backbone = backbones.create(own, num_classes=5)
    images = torch.rand(16, 1, 28, 28)
    backbone.convert("epsilon")
    dial.calibrate(backbone.network, [images], "target")
    network = dial.fold(backbone.network, fuse=False)
    added = network.state_dict().keys() - own.network.state_dict().keys()
    assert {"1.running_mean", "1.running_var", "3.bias"} <= added
    models.save(tmp_path / "m.safetensors", Model(network, CLASSES, DIGITS, backbone.name))
    loaded = models.load(tmp_path / "m.safetensors", backbone=own)
    assert torch.equal(logits(loaded.network, images), logits(network, images))


def test_norms_that_could_not_be_merged_are_there_again_after_loading(tmp_path: Path) -> None:
    own = Backbone.of(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)),
        ),
        insert_before=("0", "3"),
        append_after=("0", "3"),
    )
    backbone = backbones.create(own, num_classes=5)
    images = torch.rand(16, 1, 28, 28)
    network = adapted(backbone, images)
    assert [type(m) for m in network[0]] == [nn.BatchNorm2d, nn.Conv2d]  # type: ignore[index]
    assert len(network[3]) == 3  # type: ignore[index]
    with torch.no_grad():
        expected = backbone.network.eval()(images)
    torch.testing.assert_close(logits(network, images), expected, atol=1e-5, rtol=1e-5)
    models.save(tmp_path / "m.safetensors", Model(network, CLASSES, DIGITS, backbone.name))
    loaded = models.load(tmp_path / "m.safetensors", backbone=own)
    assert torch.equal(logits(loaded.network, images), logits(network, images))


def depthwise() -> nn.Module:
    """A network in which a whitening finds no layer to be multiplied into."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, groups=8, bias=False),
        nn.BatchNorm2d(8),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.BatchNorm1d(32),
        nn.Linear(32, 5),
    )


@pytest.mark.parametrize("name", ["digits_cnn", "efficientnet_lite0", "depthwise"])
def test_whitened_networks_are_loaded_without_da_layers(tmp_path: Path, name: str) -> None:
    own = Backbone.of(depthwise(), append_after=("7",)) if name == "depthwise" else None
    backbone = backbones.create(own or name, num_classes=5, weights="none", align_logits=True)
    side, channels = (64, 3) if name == "efficientnet_lite0" else (28, 1)
    images = torch.rand(8, channels, side, side)
    backbone.convert("whitened:4")
    dial.calibrate(backbone.network, [images], "target")
    network = dial.fold(backbone.network, fuse=False)
    models.save(tmp_path / "m.safetensors", Model(network, CLASSES, DIGITS, backbone.name))
    loaded = models.load(tmp_path / "m.safetensors", backbone=own)
    assert torch.equal(logits(loaded.network, images), logits(network, images))
    again = tmp_path / "again.safetensors"
    models.save(again, loaded)
    expected = logits(network, images)
    assert torch.equal(logits(models.load(again, backbone=own).network, images), expected)
    if name == "digits_cnn":  # its own architecture takes the tensors
        dial.build(name, num_classes=5, weights="none").load_state_dict(network.state_dict())
    if name == "depthwise":
        assert [type(layer) for layer in network[3]] == [nn.Conv2d, nn.BatchNorm2d]
        assert [type(layer) for layer in network[6]] == [nn.Linear, nn.BatchNorm1d]


def test_a_network_that_was_passed_as_an_object_is_loaded_with_it(tmp_path: Path) -> None:
    path, own = tmp_path / "m.safetensors", dial.build("digits_cnn", num_classes=5)
    backbone = backbones.create(own, num_classes=5, align_logits=True)
    images = torch.rand(8, 1, 28, 28)
    network = adapted(backbone, images)
    assert not any(isinstance(module, dial.DomainAlignment) for module in own.modules())
    models.save(path, Model(network, CLASSES, DIGITS, backbone.name))
    with safe_open(path, framework="np") as file:
        assert json.loads(file.metadata()["dial"])["backbone"] == "object:DigitsCNN"
    wanted = r"a backbone that dial can build.*'object:DigitsCNN'.*runs\.load\(folder, backbone="
    with pytest.raises(DialError, match=wanted):
        models.load(path)

    state = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    for same in (own, Backbone.of(own), replace(backbone, network=own)):
        loaded = models.load(path, backbone=same)
        assert torch.equal(logits(loaded.network, images), logits(network, images))
        assert loaded.backbone == "object:DigitsCNN"
    assert all(torch.equal(state[name], tensor) for name, tensor in own.state_dict().items())
    wanted = r"the tensors of object:Sequential, got others .*`block1`.*pass the network that was"
    with pytest.raises(DialError, match=wanted):
        models.load(path, backbone=bare())
    with pytest.raises(DialError, match=r"5 outputs, one for each class.*, got 7"):
        models.load(path, backbone=dial.build("digits_cnn", num_classes=7))


def test_tied_weights_can_be_saved(tmp_path: Path) -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(5, 5), nn.Linear(5, 5))
    own[2].weight = own[1].weight
    models.save(tmp_path / "m.safetensors", Model(own, CLASSES, DIGITS, "object:Sequential"))
    loaded = models.load(tmp_path / "m.safetensors", backbone=own).network
    assert loaded[2].weight is loaded[1].weight  # type: ignore[index]
    assert torch.equal(loaded[2].weight, own[2].weight)  # type: ignore[index]


def test_predicts_in_eval_mode_with_the_networks_precision() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(4, 3)).double().train()
    images = torch.rand(5, 1, 2, 2)
    result = models.predict(network, images.split(2))
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, network[2](images.double().flatten(1)).float())
