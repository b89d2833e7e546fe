"""DomainAlignment: momentum, the shared affine, empty parts, and errors."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dial import DialError, DomainAlignment, use_domain
from dial.references import Anchored, Laplace


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_momentum_is_torchs(momentum: float | None) -> None:
    layer, plain = DomainAlignment(3, momentum=momentum), nn.BatchNorm1d(3, momentum=momentum)
    for _ in range(4):
        x = torch.randn(10, 3) + 5
        with use_domain(layer, "source"):
            layer(x)
        plain(x)
    statistics = layer.statistics("source")
    assert statistics is not None
    torch.testing.assert_close(statistics.location, plain.running_mean)
    torch.testing.assert_close(statistics.spread, plain.running_var)
    assert layer.num_batches_tracked.tolist() == [4, 0]


def test_gradients_of_every_domain_reach_the_affine() -> None:
    layer = DomainAlignment(4, domains=("a", "b", "c"))
    for domain in layer.domains:
        layer.zero_grad()
        with use_domain(layer, domain):
            layer(torch.randn(8, 4)).pow(3).sum().backward()
        assert layer.weight is not None
        assert layer.bias is not None
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        assert bool((layer.weight.grad != 0).all())


def test_domain_without_samples_is_left_alone() -> None:
    layer = DomainAlignment(4)
    before = copy.deepcopy(layer.state_dict())
    x = torch.randn(6, 4)
    with use_domain(layer, {"source": 6, "target": 0}):
        torch.testing.assert_close(layer(x), F.batch_norm(x, None, None, training=True))
    assert torch.equal(layer.state_dict()["location"][1], before["location"][1])
    assert layer.num_batches_tracked.tolist() == [1, 0]
    with use_domain(layer, "source"):
        assert layer(torch.empty(0, 4, 2)).shape == (0, 4, 2)
    assert layer.num_batches_tracked.tolist() == [1, 0]


def test_one_sample_is_an_error_that_names_layer_domain_and_shape() -> None:
    model = nn.Sequential(nn.Linear(4, 3), DomainAlignment(3))
    with (
        use_domain(model, {"source": 4, "target": 1}),
        pytest.raises(DialError, match=r"layer '1' .*domain 'target', got 1 sample .*\(5, 3\)"),
    ):
        model(torch.randn(5, 4))
    assert model.eval()(torch.randn(1, 4)).shape == (1, 3)


def test_wrong_channels_and_settings_are_errors() -> None:
    with pytest.raises(DialError, match=r"\(N, 3, ...\).*got shape \(2, 4\)"):
        DomainAlignment(3)(torch.randn(2, 4))
    with pytest.raises(DialError, match="one of the references anchored, epsilon, generalized,"):
        DomainAlignment(3, reference="cauchy")
    with pytest.raises(DialError, match="without estimate, transform"):
        DomainAlignment(3, reference=object())
    with pytest.raises(DialError, match="a class"):
        DomainAlignment(3, reference=Laplace)
    with pytest.raises(DialError, match=r"all different, got domains=\('a', 'a'\)"):
        DomainAlignment(3, domains=("a", "a"))
    with pytest.raises(DialError, match=r"in \(0, 1\].*got 0"):
        Anchored(0)


def test_an_affine_per_domain_is_a_batch_norm_per_domain() -> None:
    layer = DomainAlignment(3, affine="per-domain", domains=("a", "b")).double()
    norms = [nn.BatchNorm2d(3).double() for _ in layer.domains]
    assert layer.weight is not None
    assert layer.bias is not None
    with torch.no_grad():
        for norm, weight, bias in zip(norms, layer.weight, layer.bias, strict=True):
            norm.weight.copy_(weight.uniform_(0.5, 2))
            norm.bias.copy_(bias.uniform_(-1, 1))
    x = [torch.randn(n, 3, 4, 2, dtype=torch.float64) * n for n in (6, 3)]
    with use_domain(layer, {"a": 6, "b": 3}):
        y = layer(torch.cat(x))
    expected = torch.cat([norm(part) for norm, part in zip(norms, x, strict=True)])
    torch.testing.assert_close(y, expected)
    g = torch.randn_like(y)
    y.backward(g)
    expected.backward(g)
    for row, norm in enumerate(norms):
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        torch.testing.assert_close(layer.weight.grad[row], norm.weight.grad)
        torch.testing.assert_close(layer.bias.grad[row], norm.bias.grad)
        norm.eval()
    layer.eval()
    with use_domain(layer, {"a": 6, "b": 3}):
        frozen = layer(torch.cat(x))
    expected = torch.cat([norm(part) for norm, part in zip(norms, x, strict=True)])
    torch.testing.assert_close(frozen, expected)


@pytest.mark.parametrize("reference", ["normal", "laplace"])
def test_gradients_of_a_domain_reach_only_its_own_affine(reference: str) -> None:
    layer = DomainAlignment(4, affine="per-domain", reference=reference)
    with use_domain(layer, {"source": 5, "target": 4}):
        layer(torch.randn(9, 4))[5:].pow(3).sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad is not None
        assert bool((parameter.grad[0] == 0).all())
        assert bool((parameter.grad[1] != 0).all())
    assert "affine=per-domain" in repr(layer)
    with pytest.raises(DialError, match=r"shared \(by all domains\) or per-domain, got 'own'"):
        DomainAlignment(4, affine="own")


class Operations(TorchDispatchMode):
    """The operations that run inside the `with`, and the sizes of what they return."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[tuple[str, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        result = func(*args, **kwargs or {})
        sizes = [tensor.numel() for tensor in tree_leaves(result) if isinstance(tensor, Tensor)]
        self.names.append((str(func), sum(sizes)))
        return result


def test_more_domains_cost_no_more_operations() -> None:
    runs = []
    for count in (2, 8):
        layer = DomainAlignment(4, domains=[f"domain {i}" for i in range(count)])
        x = torch.randn(9, 4, 3, 3).requires_grad_()
        with use_domain(layer, {"domain 1": 6, "domain 0": 3}), Operations() as operations:
            layer(x).square().sum().backward()
        runs.append(operations.names)
    assert runs[0] == runs[1]


def test_memory_grows_with_the_domains_by_their_statistics_alone() -> None:
    sizes = []
    for count in (2, 8):
        layer = DomainAlignment(16, domains=[f"domain {i}" for i in range(count)])
        tensors = [*layer.parameters(), *layer.buffers()]
        sizes.append(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    assert sizes[1] - sizes[0] == 6 * (2 * 16 * 4 + 8)  # mean, variance, number of batches
