"""fold: a plain network with the same outputs, also where this package is not installed."""

import copy
import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dial import (
    DialError,
    DomainAlignment,
    calibrate,
    convert,
    fold,
    losses,
    torchvision_guard,
    use_domain,
)

from ..conftest import slow

NAMES = ["normal", "epsilon", "laplace", "anchored"]
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: torchvision.models.resnet18(num_classes=7),
    "densenet": lambda: torchvision.models.DenseNet(8, (2, 2), 16, num_classes=7),
    "shufflenet": lambda: torchvision.models.shufflenet_v2_x0_5(num_classes=7),
    "efficientnet_lite0": lambda: timm.create_model("tf_efficientnet_lite0", num_classes=7),
}
EACH_NETWORK = [slow(name) if name == "efficientnet_lite0" else name for name in NETWORKS]
# BatchNorms that remain: those that do not follow a convolution directly.
REMAINING = {"resnet18": 0, "densenet": 6, "shufflenet": 0, "efficientnet_lite0": 0}


def trained(
    model: nn.Module, reference: str, *, logits: bool = True, size: int = 32, **settings: Any
) -> nn.Module:
    """A converted network after two steps of training, with both domains' statistics its own."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    appended = linear[-1:] if logits else ()
    model = convert(model, reference=reference, append_after=appended, **settings)
    dtype = next(model.parameters()).dtype
    images = torch.randn(12, 3, size, size, dtype=dtype)
    images[6:] = 2 * images[6:] - 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        with use_domain(model.train(), {"source": 6, "target": 6}):
            losses.entropy(model(images)).backward()
        optimizer.step()
    calibrate(model, [images[6:]])
    return model.eval()


def ours(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if type(m).__module__.split(".")[0] == "dial"]


@pytest.mark.parametrize("reference", NAMES)
@pytest.mark.parametrize("name", EACH_NETWORK)
def test_folded_network_is_plain_and_equal(name: str, reference: str) -> None:
    # In float64, so that the algebra is seen and not the conditioning of untrained networks.
    original = NETWORKS[name]().double()
    keys = original.state_dict().keys()
    model = trained(original, reference)
    x = torch.randn(5, 3, 32, 32, dtype=torch.float64)
    for domain in ("target", "source"):
        with torch.no_grad(), use_domain(model, domain):
            expected = model(x)
        for fuse in (True, False):
            plain = fold(model, domain, fuse=fuse)
            assert not ours(plain)
            assert not plain.training
            with torch.no_grad():
                torch.testing.assert_close(plain(x), expected, atol=1e-9, rtol=1e-9)
            norms = sum(isinstance(module, _BatchNorm) for module in plain.modules())
            if fuse:
                assert norms == REMAINING[name]
            else:  # the architecture it had
                assert plain.state_dict().keys() == keys


@pytest.mark.parametrize("reference", NAMES)
def test_the_original_architecture_takes_the_folded_state(reference: str) -> None:
    # timm's norms here have an eps of 1e-3; a channel that is constant has a scale below that.
    make = NETWORKS["efficientnet_lite0"]
    model = make().double()
    model.conv_stem.weight.data[0] = 0
    model = trained(model, reference, logits=False)
    again = make().double().eval()
    again.load_state_dict(fold(model, fuse=False).state_dict())
    x = torch.randn(5, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(again(x), model(x), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("reference", NAMES)
def test_folded_network_is_equal_in_float32(reference: str) -> None:
    model = trained(NETWORKS["resnet18"](), reference, logits=False, size=96)
    x = torch.randn(5, 3, 96, 96)
    with torch.no_grad():
        for plain in (fold(model), fold(model, fuse=False)):
            torch.testing.assert_close(plain(x), model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_lite0"])
def test_folding_takes_the_affine_of_the_domain(name: str) -> None:
    model = trained(NETWORKS[name]().double(), "normal", affine="per-domain")
    last = [module for module in model.modules() if isinstance(module, DomainAlignment)][-1]
    assert last.bias is not None
    assert not torch.equal(last.bias[0], last.bias[1])
    x = torch.randn(5, 3, 32, 32, dtype=torch.float64)
    for domain, fuse in itertools.product(("source", "target"), (True, False)):
        with torch.no_grad(), use_domain(model, domain):
            plain = fold(model, domain, fuse=fuse)
            torch.testing.assert_close(plain(x), model(x), atol=1e-9, rtol=1e-9)
        assert not ours(plain)
    assert last.bias.shape == (2, 7)  # the network itself keeps both


def test_the_networks_themselves_are_not_changed() -> None:
    model = trained(NETWORKS["resnet18"](), "normal")
    before = copy.deepcopy(model.state_dict())
    fold(model)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


class Branching(nn.Module):
    """A convolution whose output two layers use, one whose control flow hides from tracing."""

    def __init__(self, *, traceable: bool) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.traceable = traceable

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if not self.traceable and x.mean() > 1e9:
            return x
        return self.norm(x) + (x if self.traceable else 0)


@pytest.mark.parametrize("traceable", [True, False])
def test_only_layers_that_feed_the_norm_alone_are_fused(traceable: bool) -> None:
    model = convert(Branching(traceable=traceable)).eval()
    plain = fold(model)
    assert isinstance(plain.norm, nn.BatchNorm2d)
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(plain(x), model(x), atol=1e-6, rtol=1e-6)


class Standardized(nn.Conv2d):
    """A convolution that rescales its weight on every pass, so it cannot be multiplied into."""

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.weight / self.weight.norm(), self.bias)


def test_layers_with_weights_of_their_own_making_are_not_fused() -> None:
    parametrised = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    for first, x in [
        (Standardized(3, 4, 1), torch.randn(2, 3, 2, 2)),
        (parametrised, torch.randn(5, 4)),
    ]:
        model = convert(nn.Sequential(first), append_after=["0"], reference="epsilon").eval()
        with torch.no_grad():
            torch.testing.assert_close(fold(model)(x), model(x), atol=1e-6, rtol=1e-6)


def test_linear_layers_over_tokens_are_not_fused() -> None:
    model = nn.Sequential(nn.Linear(3, 5), DomainAlignment(5))  # (N, 5 tokens, 5 features)
    x = torch.randn(6, 5, 3)
    model(x)
    model.eval()
    torch.testing.assert_close(fold(model)(x), model(x), atol=1e-6, rtol=1e-6)


def lived_in(model: nn.Module) -> nn.Module:
    """A converted network in float64 whose new layers have statistics and affines of their own."""
    model.double().eval()
    for module in model.modules():
        if isinstance(module, DomainAlignment):
            assert module.location is not None
            assert module.spread is not None
            nn.init.normal_(module.location)
            nn.init.uniform_(module.spread, 0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias)
    return model


def by_hand(layer: nn.Module, alignment: DomainAlignment | None, x: Tensor) -> Tensor:
    """What comes out if `F.batch_norm` goes before a layer, with the target's statistics."""
    if alignment is None:
        return layer(x)  # type: ignore[no-any-return]
    mean, var = alignment.location[1], alignment.spread[1]  # type: ignore[index]
    return layer(F.batch_norm(x, mean, var, alignment.weight, alignment.bias))  # type: ignore[no-any-return]


MERGED: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(4, 6),
    "linear without bias": lambda: nn.Linear(4, 6, bias=False),
    "conv 1x1": lambda: nn.Conv2d(4, 6, 1),
    "conv 3x3": lambda: nn.Conv2d(4, 6, 3, stride=2, dilation=2),
    "conv in groups": lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False),
    "conv over channels": lambda: nn.Conv2d(4, 8, 3, groups=4),
    "conv 1d": lambda: nn.Conv1d(4, 6, 3),
    "conv 3d": lambda: nn.Conv3d(4, 6, 2, padding="valid"),
    "conv with a circle": lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
    "conv 1x1 same": lambda: nn.Conv2d(4, 6, 1, padding="same"),
    "timm's conv 1x1": lambda: timm.layers.Conv2dSame(4, 6, 1),
}
NOT_MERGED: dict[str, Callable[[], nn.Module]] = {
    "conv with zeros": lambda: nn.Conv2d(4, 6, 3, padding=1),
    "conv 1x1 with zeros": lambda: nn.Conv2d(4, 6, 1, padding=1),
    "conv same": lambda: nn.Conv2d(4, 6, 3, padding="same"),
    "timm's conv": lambda: timm.layers.Conv2dSame(4, 6, 3),
    "parametrized": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 6)),
    "transposed": lambda: nn.ConvTranspose2d(4, 6, 3),
}


def input_for(layer: nn.Module) -> Tensor:
    rank = layer.weight.dim() - 2  # type: ignore[union-attr, operator]
    return torch.randn(3, 4, *[7] * rank, dtype=torch.float64)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("sides", ["before", "after", "both"])
@pytest.mark.parametrize("kind", [*MERGED, *NOT_MERGED])
def test_layers_put_around_a_layer_are_merged_into_it(kind: str, sides: str, fuse: bool) -> None:
    original = (MERGED | NOT_MERGED)[kind]().double()
    around = {
        "insert_before": ["0"] if sides != "after" else [],
        "append_after": ["0"] if sides != "before" else [],
    }
    model = lived_in(convert(nn.Sequential(copy.deepcopy(original)), **around))  # type: ignore[arg-type]
    aligned, x = model[0], input_for(original)
    with torch.no_grad():
        inside = by_hand(original, aligned.before, x)
        expected = by_hand(nn.Identity(), aligned.after, inside)
        torch.testing.assert_close(model(x), expected, atol=1e-10, rtol=1e-10)
        plain = fold(model, fuse=fuse)
        assert not ours(plain)
        torch.testing.assert_close(plain(x), expected, atol=1e-10, rtol=1e-10)
    if kind in MERGED:
        assert type(plain[0]) is type(original)
        assert plain.state_dict().keys() - {"0.bias"} == {"0.weight"}
    elif sides == "before" or kind in ("parametrized", "transposed"):
        expected_types = [_BatchNorm] * (aligned.before is not None) + [type(original)]
        expected_types += [_BatchNorm] * (aligned.after is not None)
        assert all(isinstance(*pair) for pair in zip(plain[0], expected_types, strict=True))


def test_a_layer_before_a_padded_convolution_goes_into_the_one_before_that() -> None:
    network = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 6, 3, padding=1))
    model = lived_in(convert(network, insert_before=["1"]))
    x = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    with torch.no_grad():
        plain = fold(model)
        torch.testing.assert_close(plain(x), model(x), atol=1e-10, rtol=1e-10)
    assert [type(layer) for layer in plain] == [nn.Conv2d, nn.Conv2d]
    assert isinstance(fold(model, fuse=False)[1][0], nn.BatchNorm2d)


@pytest.mark.parametrize("shape", [(6, 5, 4), (6, 3, 5, 4)])
def test_linear_layers_over_tokens_are_aligned_by_their_features(shape: tuple[int, ...]) -> None:
    layer = nn.Linear(4, 3)
    model = convert(nn.Sequential(layer), append_after=["0"], insert_before=["0"]).double()
    x = torch.randn(shape, dtype=torch.float64)
    with use_domain(model.train(), {"source": 4, "target": 2}):
        found = model(x)
    parts = []
    for part in (x[:4], x[4:]):
        inside = layer(F.batch_norm(part.reshape(-1, 4), None, None, training=True))
        parts.append(F.batch_norm(inside, None, None, training=True).view(*part.shape[:-1], 3))
    torch.testing.assert_close(found, torch.cat(parts), atol=1e-10, rtol=1e-10)
    model = lived_in(model)
    with torch.no_grad():
        plain = fold(model, fuse=False)
        torch.testing.assert_close(plain(x), model(x), atol=1e-10, rtol=1e-10)
    assert type(plain[0]) is nn.Linear


def test_tokens_of_a_layer_that_cannot_be_merged_into_are_refused() -> None:
    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    model = convert(nn.Sequential(parametrized), append_after=["0"])
    model(torch.randn(3, 5, 4))
    with pytest.raises(DialError, match=r"to merge layer '0\.1' .* into, got a Parametrized"):
        fold(model)


def test_a_layer_that_is_aligned_twice_is_merged_from_the_inside() -> None:
    model = convert(nn.Sequential(nn.Linear(4, 4)), append_after=["0"], insert_before=["0"])
    model = lived_in(convert(model, append_after=["0.1"], insert_before=["0.1"]))
    assert sum(isinstance(module, DomainAlignment) for module in model.modules()) == 4
    x = torch.randn(5, 4, dtype=torch.float64)
    with torch.no_grad():
        plain = fold(model)
        torch.testing.assert_close(plain(x), model(x), atol=1e-10, rtol=1e-10)
    assert type(plain[0]) is nn.Linear


def test_weights_that_are_tied_to_others_are_not_changed_there() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    network[2].weight = network[0].weight
    model = lived_in(convert(network, append_after=["2"], insert_before=["2"]))
    x = torch.randn(5, 4, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(fold(model)(x), model(x), atol=1e-10, rtol=1e-10)


def test_copies_pickles_and_compiles() -> None:
    model = trained(NETWORKS["shufflenet"](), "anchored")
    plain = fold(model)
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        expected = plain(x)
        twins = [copy.deepcopy(plain), pickle.loads(pickle.dumps(plain))]
        for twin in [*twins, torch.compile(plain, backend="aot_eager")]:
            torch.testing.assert_close(twin(x), expected, atol=1e-5, rtol=1e-5)
        folded_compiled = fold(torch.compile(model, backend="aot_eager"))
        torch.testing.assert_close(folded_compiled(x), expected)


def test_exports_run_without_this_package(tmp_path: Path) -> None:
    model = trained(NETWORKS["resnet18"](), "laplace")
    plain = fold(model)
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        expected = plain(x)  # other tests compare it with the network before folding
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(plain, (x,), dynamic_shapes=(batch,))
    torch.export.save(program, tmp_path / "model.pt2")
    torch.save(plain, tmp_path / "model.pickle")
    torch.save((x, expected), tmp_path / "pair.pt")
    torch.onnx.export(program, (x,), tmp_path / "model.onnx", dynamo=True, verbose=False)
    script = f"""
import sys
sys.modules["dial"] = None  # every import of it fails
sys.path.insert(0, {str(tmp_path)!r})
import guard, torch, onnxruntime
x, expected = torch.load({str(tmp_path / "pair.pt")!r})
exported = torch.export.load({str(tmp_path / "model.pt2")!r}).module()(x)
import torchvision
pickled = torch.load({str(tmp_path / "model.pickle")!r}, weights_only=False)(x)
session = onnxruntime.InferenceSession({str(tmp_path / "model.onnx")!r})
(onnx,) = session.run(None, {{session.get_inputs()[0].name: x.numpy()}})
for y in (exported, pickled, torch.from_numpy(onnx)):
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-4)
"""
    # The guard is for torchvision, on machines where that does not import; it is no part of us.
    guard = Path(torchvision_guard.__file__).read_text()
    (tmp_path / "guard.py").write_text(guard + "\nprepare_torchvision()\n")
    subprocess.run([sys.executable, "-c", script], check=True)


def test_onnx_runtime_agrees_for_any_batch_size(tmp_path: Path) -> None:
    model = trained(NETWORKS["resnet18"](), "epsilon", logits=False, size=64)
    path = tmp_path / "model.onnx"
    batch = {0: torch.export.Dim("batch")}
    example = torch.randn(2, 3, 64, 64)
    torch.onnx.export(
        fold(model), (example,), path, dynamo=True, verbose=False, dynamic_shapes=(batch,)
    )
    session = onnxruntime.InferenceSession(path)
    for size in (1, 6):
        x = torch.randn(size, 3, 64, 64)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(y, model(x).numpy(), atol=1e-5, rtol=1e-4)


def test_what_cannot_be_folded_is_said() -> None:
    with pytest.raises(DialError, match="a network with DA-layers, got a Linear"):
        fold(nn.Linear(2, 2))
    with pytest.raises(DialError, match="one of the domains source, target, got 'webcam'"):
        fold(convert(nn.Sequential(nn.BatchNorm1d(2))), "webcam")
    with pytest.raises(DialError, match=r"none in '0'.*dial.calibrate\(model, loader"):
        fold(convert(nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False))))
    with pytest.raises(DialError, match="run one batch through the network"):
        fold(nn.Sequential(DomainAlignment(2)))
