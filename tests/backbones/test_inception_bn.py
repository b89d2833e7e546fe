from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

import dial
from dial import backbones
from dial.backbones.inception_bn import BLOCKS, InceptionBN

Array = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def network() -> InceptionBN:
    torch.manual_seed(0)
    network = InceptionBN().double().eval()
    for module in network.modules():  # statistics and affine that leave their traces
        if isinstance(module, nn.BatchNorm2d):
            state = module.state_dict()  # shares its tensors
            for name in ("weight", "running_var"):
                state[name].uniform_(0.5, 1.5)
            for name in ("bias", "running_mean"):
                state[name].uniform_(-0.5, 0.5)
    return network


def convolve(state: dict[str, Array], name: str, x: Array, stride: int = 1) -> Array:
    """Convolution, BatchNorm and ReLU of one unit, a patch at a time."""
    weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
    size = weight.shape[-1]
    x = np.pad(x, ((0, 0), (0, 0), (size // 2, size // 2), (size // 2, size // 2)))
    side = (x.shape[-1] - size) // stride + 1
    y = np.empty((len(x), len(weight), side, side))
    for i in range(side):
        for j in range(side):
            patch = x[:, :, i * stride : i * stride + size, j * stride : j * stride + size]
            y[:, :, i, j] = np.tensordot(patch, weight, axes=([1, 2, 3], [1, 2, 3])) + bias
    norm = {
        key: state[f"{name}_bn.{key}"].reshape(1, -1, 1, 1)
        for key in ("weight", "bias", "running_mean", "running_var")
    }
    y = (y - norm["running_mean"]) / np.sqrt(norm["running_var"] + 1e-5)
    return np.maximum(y * norm["weight"] + norm["bias"], 0)


def pool(x: Array, kind: str) -> Array:
    """`average` and `max` over 3 x 3 with a border; `halve`: max, stride 2, cut at the far edge."""
    n, c, side, _ = x.shape
    step, border = (2, 0) if kind == "halve" else (1, 1)
    fill = 0.0 if kind == "average" else -np.inf
    x = np.pad(x, ((0, 0), (0, 0), (border, 2), (border, 2)), constant_values=fill)
    y = np.empty((n, c, side // step, side // step))
    for i in range(side // step):
        for j in range(side // step):
            patch = x[:, :, i * step : i * step + 3, j * step : j * step + 3]
            y[:, :, i, j] = patch.sum((2, 3)) / 9 if kind == "average" else patch.max((2, 3))
    return y


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("inception_3a", "average"),
        ("inception_3c", "halve"),
        ("inception_4e", "halve"),
        ("inception_5b", "max"),
    ],
)
def test_a_block_equals_a_slow_evaluation(network: InceptionBN, name: str, kind: str) -> None:
    x = torch.randn(2, BLOCKS[name].inputs, 4, 4, dtype=torch.float64)
    with torch.no_grad():
        got = network.inception(name, BLOCKS[name], x).numpy()
    state = {key: tensor.numpy() for key, tensor in network.state_dict().items()}
    z, stride = x.numpy(), 2 if kind == "halve" else 1
    branches = [] if stride == 2 else [convolve(state, f"{name}_1x1", z)]
    y = convolve(state, f"{name}_3x3_reduce", z)
    branches.append(convolve(state, f"{name}_3x3", y, stride))
    y = convolve(state, f"{name}_double_3x3_1", convolve(state, f"{name}_double_3x3_reduce", z))
    branches.append(convolve(state, f"{name}_double_3x3_2", y, stride))
    y = pool(z, kind)
    branches.append(y if stride == 2 else convolve(state, f"{name}_pool_proj", y))
    np.testing.assert_allclose(got, np.concatenate(branches, axis=1), atol=1e-10)


def test_has_the_size_of_the_published_network(network: InceptionBN) -> None:
    assert sum(p.numel() for p in network.parameters()) == 11_295_240
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 69
    # Each block takes as many channels as the one before gives.
    shapes: list[int] = []
    network.last_linear.register_forward_pre_hook(lambda _, x: shapes.append(x[0].shape[1]))
    assert network(torch.randn(1, 3, 32, 32, dtype=torch.float64)).shape == (1, 1000)
    assert shapes == [1024]


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("conv1_7x7_s2.weight", (64, 3, 7, 7)),
        ("conv1_7x7_s2.bias", (64,)),
        ("conv1_7x7_s2_bn.running_var", (64,)),
        ("conv2_3x3_reduce.weight", (64, 64, 1, 1)),
        ("conv2_3x3_bn.weight", (192,)),
        ("inception_3b_pool_proj.weight", (64, 256, 1, 1)),
        ("inception_3c_double_3x3_2.weight", (96, 96, 3, 3)),
        ("inception_4a_1x1.weight", (224, 576, 1, 1)),
        ("inception_4d_3x3.weight", (192, 128, 3, 3)),
        ("inception_4e_double_3x3_1_bn.bias", (256,)),
        ("inception_5a_double_3x3_reduce.weight", (160, 1056, 1, 1)),
        ("inception_5b_double_3x3_reduce.weight", (192, 1024, 1, 1)),
        ("last_linear.weight", (1000, 1024)),
    ],
)
def test_has_the_names_and_shapes_of_the_public_port(
    network: InceptionBN, key: str, shape: tuple[int, ...]
) -> None:
    assert network.state_dict()[key].shape == shape


def test_takes_rgb_where_the_public_weights_take_bgr(network: InceptionBN) -> None:
    bgr = torch.rand(2, 3, 32, 32, dtype=torch.float64) * 255
    subtracted = bgr - torch.tensor([104.0, 117.0, 128.0], dtype=torch.float64).view(3, 1, 1)
    first = network.get_submodule("conv1_7x7_s2")
    wanted = first(subtracted)

    backbone = backbones.create("inception_bn", weights="none")
    mean = torch.tensor(backbone.mean, dtype=torch.float64).view(3, 1, 1)
    std = torch.tensor(backbone.std, dtype=torch.float64).view(3, 1, 1)
    rgb = bgr[:, [2, 1, 0]] / 255
    seen: list[torch.Tensor] = []
    hook = first.register_forward_hook(lambda *call: seen.append(call[2]))
    with torch.no_grad():
        network((rgb - mean) / std)
    hook.remove()
    torch.testing.assert_close(seen[0], wanted)


def test_loads_the_public_file_whose_batch_norms_are_rows(
    network: InceptionBN, tmp_path: Path
) -> None:
    state = {
        key: tensor[None] if "_bn." in key else tensor
        for key, tensor in network.float().state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    torch.save(state, tmp_path / "bn_inception.pth")
    backbone = backbones.create("inception_bn", weights=tmp_path / "bn_inception.pth")
    assert backbone.new == ("last_linear",)
    assert all(
        torch.equal(tensor, network.state_dict()[key])
        for key, tensor in backbone.network.state_dict().items()
        if not key.startswith("last_linear") and not key.endswith("num_batches_tracked")
    )
    network.double()

    # Pretrained, the stem and the first three blocks stay as they are.
    trained = {id(p) for g in backbone.parameter_groups(1, weight_decay=0) for p in g["params"]}
    frozen = {n for n, p in backbone.network.named_parameters() if id(p) not in trained}
    starts = ("conv1", "conv2", "inception_3")
    assert frozen == {n for n, _ in backbone.network.named_parameters() if n.startswith(starts)}
    layers = [m for m in backbone.convert().modules() if isinstance(m, dial.DomainAlignment)]
    assert len(layers) == 69


def test_random_weights_are_not_frozen() -> None:
    assert backbones.create("inception_bn", weights="none").frozen == ()
