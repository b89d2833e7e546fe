"""A check that a method keeps the contract of `Method`; for one's own methods too."""

import torch
from torch import nn

from dial.backbones import Backbone
from dial.data.batches import Batch
from dial.errors import DialError
from dial.methods.interface import ByDomain, Images, Method, Trainee

_CLASSES, _SOURCE, _TARGET = 3, 12, 8


def check_method(method: str | Method) -> None:
    """Check that a method, by name or as an object, keeps the contract of `Method`.

    Trains a step on a small network with random images and finishes it. Losses must be finite
    scalars, every parameter must get a gradient, and the predictor must be a plain network in
    eval mode. The method gets no labels of the target; without `needs_target` it gets no target
    images in training, without `adapts` none at the end, and without `needs_source` no source.

    Raises:
        DialError: names what is broken.

    >>> check_method("ddc")
    """
    from dial.methods import create  # it needs this module

    method = create(method)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        source, target = torch.randn(_SOURCE, 3, 8, 8), torch.randn(_TARGET, 3, 8, 8)
        labels = torch.arange(_SOURCE) % _CLASSES
        layers = [nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
        network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(6, _CLASSES))
        record = Backbone.of(network, image_size=8, sources=("source",) * method.needs_source)
        trainee = method.prepare(record)
        _require(isinstance(trainee, Trainee), "prepare", "a dial.methods.Trainee", trainee)
        if not method.needs_source:
            source, labels = source[:0], labels[:0]
        known = source.split(4) if method.needs_source else ByDomain({})
        images = Images(known, labels, target.split(4) if method.adapts else ())
        first = method.begin(trainee, images)
        if method.trains:
            places = torch.arange(_TARGET)
            batch = Batch(source, labels, target, places) if method.needs_target else None
            _check_step(method, trainee, batch or Batch(source, labels, None))
            method.refresh(trainee.eval(), images, first)
        unadapted = method.unadapted(trainee.eval(), images.source)
        method.finish(trainee, images)
        _check_plain("predictor", method.predictor(trainee, images))
        later = method.candidates(trainee, images, first.get("target"))
        for candidate in [*first.values(), *later]:
            _check_plain("candidates", candidate.network)
        if unadapted is not None:
            _check_plain("unadapted", unadapted)


def _check_step(method: Method, trainee: Trainee, batch: Batch) -> None:
    trainee.train()
    for terms in method.terms(trainee, batch, 0.5):
        for name, term in terms.items():
            sound = term.dim() == 0 and bool(term.isfinite()) and term.requires_grad
            _require(sound, "terms", f"{name} to be a finite scalar with a gradient", term)
        torch.stack([*terms.values()]).sum().backward()
    for name, parameter in trainee.named_parameters():
        gradient, wanted = parameter.grad, f"a finite gradient of the parameter {name}"
        sound = gradient is not None and bool(gradient.isfinite().all())
        _require(sound or not parameter.requires_grad, "terms", wanted, gradient)


def _check_plain(origin: str, network: nn.Module) -> None:
    for name, module in network.named_modules():
        plain = not type(module).__module__.startswith("dial.")
        _require(plain, origin, f"a plain network, without classes of dial, in {name!r}", module)
        _require(not module.training, origin, "a network in eval mode", f"training in {name!r}")
    logits, shape = network(torch.randn(_TARGET, 3, 8, 8)), (_TARGET, _CLASSES)
    sound = logits.shape == shape and bool(logits.isfinite().all())
    _require(sound, origin, f"finite logits {shape}", f"{tuple(logits.shape)}, {logits}")


def _require(condition: bool, origin: str, wanted: str, got: object) -> None:
    if not condition:
        raise DialError(
            wanted=f"{origin}: {wanted}",
            got=str(got),
            fix=f"change `{origin}` of the method; dial.methods.Method says what it has to do",
        )
