"""DA-layers against torch's BatchNorm: one layer, a training step, inference, `use_domain`.

And a layer with many domains against one with two.

Run with `make bench`, on an otherwise idle machine.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

import dial
from benchmarks.timing import best_times, show
from dial.references import Anchored

LAYER_GOALS = {
    "normal, one domain": 1.10,
    "normal, joint 2:1": 1.40,
    "anchored, one domain": 1.50,
    "laplace, one domain": 4.00,
}
OTHERS = ("student", "logistic", "generalized", "whitened:4")
SHAPES = [
    ((48, 64, 56, 56), torch.contiguous_format),
    ((48, 64, 56, 56), torch.channels_last),
    ((48, 256, 14, 14), torch.contiguous_format),
    ((48, 256, 14, 14), torch.channels_last),
    ((256, 4096), torch.contiguous_format),
]


def forward_backward(layer: nn.Module, x: Tensor, g: Tensor) -> Callable[[], object]:
    """A train-mode pass through one layer and back to its input and parameters."""
    inputs = [x, *layer.parameters()]
    return lambda: torch.autograd.grad(layer(x), inputs, g)


def layers(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    """One layer of each reference on one input."""
    x = torch.randn(shape) * 2 + 1
    x = (x.contiguous(memory_format=layout) if x.dim() > 2 else x).requires_grad_()
    g, channels = torch.randn_like(x), shape[1]
    plain = nn.BatchNorm2d(channels) if x.dim() > 2 else nn.BatchNorm1d(channels)
    parts = {"source": shape[0] * 2 // 3, "target": shape[0] - shape[0] * 2 // 3}
    joint = dial.DomainAlignment(channels)
    anchored = dial.DomainAlignment(channels, reference=Anchored(0.2))
    anchored.prior_location, anchored.prior_spread = torch.ones(channels), torch.ones(channels)
    joint_pass = forward_backward(joint, x, g)

    def in_joint_batch() -> object:
        with dial.use_domain(joint, parts):
            return joint_pass()

    laplace = dial.DomainAlignment(channels, reference="laplace")
    values = x.detach().transpose(0, 1).reshape(channels, -1).contiguous()
    candidates = {
        "BatchNorm": forward_backward(plain, x, g),
        "normal, one domain": forward_backward(dial.DomainAlignment(channels), x, g),
        "normal, joint 2:1": in_joint_batch,
        "anchored, one domain": forward_backward(anchored, x, g),
        "laplace, one domain": forward_backward(laplace, x, g),
        "torch.median alone": lambda: values.median(dim=1),
    }
    for reference in OTHERS:
        layer = dial.DomainAlignment(channels, reference=reference)
        candidates[f"{reference}, one domain"] = forward_backward(layer, x, g)
    name = "channels_last" if layout is torch.channels_last else "contiguous"
    show(f"forward + backward, {shape}, {name}", best_times(candidates), LAYER_GOALS)


def many_domains(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    """A batch of two domains through layers that have two and eight, and through other kinds."""
    x = torch.randn(shape) * 2 + 1
    x = (x.contiguous(memory_format=layout) if x.dim() > 2 else x).requires_grad_()
    g, first = torch.randn_like(x), shape[0] * 2 // 3
    two, eight = (tuple(f"domain {i}" for i in range(count)) for count in (2, 8))
    parts = {two[0]: first, two[1]: shape[0] - first}
    kinds = {
        "2 domains": dial.DomainAlignment(shape[1], domains=two),
        "8 domains": dial.DomainAlignment(shape[1], domains=eight),
        "2, affine per domain": dial.DomainAlignment(shape[1], domains=two, affine="per-domain"),
        "2, autodial": dial.DomainAlignment(shape[1], domains=two, mixing="autodial"),
        "8, autodial": dial.DomainAlignment(shape[1], domains=eight, mixing="autodial"),
    }

    def in_joint_batch(layer: nn.Module) -> Callable[[], object]:
        run = forward_backward(layer, x, g)

        def joint() -> object:
            with dial.use_domain(layer, parts):
                return run()

        return joint

    name = "channels_last" if layout is torch.channels_last else "contiguous"
    times = best_times({kind: in_joint_batch(layer) for kind, layer in kinds.items()})
    show(f"joint batch of two domains, {shape}, {name}", times, {"8 domains": 1.10})
    sizes = {
        kind: sum(t.nbytes for t in layer.state_dict().values()) for kind, layer in kinds.items()
    }
    more, statistics = sizes["8 domains"] - sizes["2 domains"], 6 * (2 * shape[1] * 4 + 8)
    print(f"  bytes more with 8 domains: {more}, of statistics: {statistics}")


def training_step(model: nn.Module, images: Tensor) -> Callable[[], object]:
    """Forward, backward and update of a whole network."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()

    return step


def networks() -> None:
    """EfficientNet-Lite0 with BatchNorm, converted, and folded."""
    import timm

    torch.manual_seed(0)
    plain = timm.create_model("tf_efficientnet_lite0", num_classes=31)
    plain.to(memory_format=torch.channels_last)
    images = torch.randn(16, 3, 128, 128).contiguous(memory_format=torch.channels_last)
    converted = dial.convert(copy.deepcopy(plain))
    anchored = dial.convert(copy.deepcopy(plain), reference="anchored")
    joint = dial.convert(copy.deepcopy(plain))
    joint_step = training_step(joint, images)

    def joint_batch() -> object:
        with dial.use_domain(joint, {"source": 11, "target": 5}):
            return joint_step()

    candidates = {
        "BatchNorm": training_step(plain, images),
        "converted, one domain": training_step(converted, images),
        "converted, joint 2:1": joint_batch,
        "converted, anchored": training_step(anchored, images),
    }
    times = best_times(candidates, seconds=40)
    show("training step, EfficientNet-Lite0, 16 x 128 px", times, {"converted, one domain": 1.05})

    folded = dial.fold(converted)
    with torch.no_grad():
        inference = {
            "BatchNorm": lambda: plain.eval()(images),
            "folded": lambda: folded(images),
            "converted, not folded": lambda: converted.eval()(images),
        }
        times = best_times(inference, seconds=15)
    show("inference, EfficientNet-Lite0, 16 x 128 px", times, {"folded": 1.00})

    def select() -> None:
        with dial.use_domain(joint, {"source": 11, "target": 5}):
            pass

    times = best_times({"use_domain": select}, seconds=1)
    show("entering and leaving use_domain, EfficientNet-Lite0", times, {})


if __name__ == "__main__":
    for shape, layout in SHAPES:
        layers(shape, layout)
        many_domains(shape, layout)
    networks()
