from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from torchvision import models

import dial
from dial import DialError, backbones, files

State = dict[str, Tensor]
BLOCKS = {"layer1": 3, "layer2": 4, "layer3": 6, "layer4": 3}


@pytest.fixture(scope="module")
def original() -> State:
    """Random tensors in torchvision's names, convolutions in float16, of 7 classes.

    Variances are small, so that eps matters.
    """
    generator = torch.Generator().manual_seed(0)
    state = models.resnet50(num_classes=7).state_dict()
    for name, tensor in state.items():
        if name.endswith(("running_mean", "bn1.bias", "bn2.bias", "bn3.bias")):
            state[name] = torch.randn(tensor.shape, generator=generator) * 0.1
        elif name.endswith("running_var"):
            state[name] = torch.rand(tensor.shape, generator=generator) * 0.004 + 0.5
        elif tensor.dim() == 4:
            state[name] = tensor.half()
    state["bn1.running_var"] = state["bn1.running_var"] / 1000
    return state


@pytest.fixture
def file(original: State, tmp_path: Path) -> Path:
    save_file(original, tmp_path / "resnet50_v1.safetensors")
    return tmp_path / "resnet50_v1.safetensors"


def logits_by_hand(state: State, bgr: Tensor) -> Tensor:
    """He et al.'s network, layer by layer, on BGR in 0..255 minus the mean."""
    state = {name: tensor.double() for name, tensor in state.items()}

    def unit(x: Tensor, convolution: str, norm: str, stride: int = 1) -> Tensor:
        weight = state[f"{convolution}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, variance, scale, shift = (
            state[f"{norm}.{name}"].view(-1, 1, 1)
            for name in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-3).sqrt() * scale + shift

    x = F.max_pool2d(unit(bgr.double(), "conv1", "bn1", 2).relu(), 3, stride=2, padding=1)
    for stage, blocks in BLOCKS.items():
        for block in range(blocks):
            name = f"{stage}.{block}"
            stride = 2 if block == 0 and stage != "layer1" else 1
            y = unit(x, f"{name}.conv1", f"{name}.bn1", stride).relu()
            y = unit(y, f"{name}.conv2", f"{name}.bn2").relu()
            y = unit(y, f"{name}.conv3", f"{name}.bn3")
            if block == 0:
                x = unit(x, f"{name}.downsample.0", f"{name}.downsample.1", stride)
            x = (x + y).relu()
    return x.mean((2, 3)) @ state["fc.weight"].t() + state["fc.bias"]


def test_is_the_original_network_on_rgb_in_0_to_1(original: State, file: Path) -> None:
    bgr = torch.randint(256, (2, 3, 64, 64)).double()
    wanted = logits_by_hand(
        original, bgr - torch.tensor([103.939, 116.779, 123.68]).view(3, 1, 1).double()
    )
    backbone = backbones.create("resnet50_v1", num_classes=7, weights=file)
    assert backbone.new == ()
    assert (backbone.image_size, backbone.crop_ratio) == (224, 0.875)
    mean, std = (torch.tensor(v).double().view(3, 1, 1) for v in (backbone.mean, backbone.std))
    rgb = torch.stack([bgr[:, 2], bgr[:, 1], bgr[:, 0]], dim=1) / 255
    network = backbone.network.double().eval()
    with torch.no_grad():
        got = network((rgb - mean) / std)
        converted = backbone.convert("normal")((rgb - mean) / std)
    for logits in (got, converted):
        torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


def test_the_file_arrives_in_float32_and_the_early_stages_are_frozen(
    original: State, file: Path
) -> None:
    backbone = backbones.create("resnet50_v1", num_classes=31, weights=file)
    state = backbone.network.state_dict()
    assert {tensor.dtype for tensor in state.values()} == {torch.float32, torch.int64}
    assert torch.equal(state["layer3.2.conv2.weight"], original["layer3.2.conv2.weight"].float())
    assert backbone.new == ("fc",)
    assert (backbone.num_features, backbone.num_classes) == (2048, 31)
    trained = {id(p) for g in backbone.parameter_groups(1, weight_decay=0) for p in g["params"]}
    frozen = {n for n, p in backbone.network.named_parameters() if id(p) not in trained}
    starts = ("conv1.", "bn1.", "layer1.", "layer2.")
    assert frozen == {n for n, _ in backbone.network.named_parameters() if n.startswith(starts)}
    assert backbones.create("resnet50_v1", weights="none").frozen == ()


def test_has_the_size_of_the_published_network() -> None:
    network = dial.build("resnet50_v1", num_classes=1000, weights="none")
    assert sum(p.numel() for p in network.parameters()) == 25_557_032


def test_a_finished_model_takes_rgb_already(file: Path, tmp_path: Path) -> None:
    state = dial.build("resnet50_v1", num_classes=7, weights=file).state_dict()
    files.save_tensors(tmp_path / "model.safetensors", state, about={"version": 3})
    again = dial.build("resnet50_v1", num_classes=7, weights=tmp_path / "model.safetensors")
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.state_dict().items())


def test_without_a_file_the_error_says_how_to_pass_one(tmp_path: Path) -> None:
    with pytest.raises(DialError, match=r"weights of resnet50_v1, got none.*--weights FILE.*BGR"):
        dial.build("resnet50_v1")
    (tmp_path / "broken.safetensors").write_bytes(b"no tensors")
    with pytest.raises(DialError, match=r"tensors, .*broken.safetensors"):
        dial.build("resnet50_v1", weights=tmp_path / "broken.safetensors")
