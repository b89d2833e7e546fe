"""use_domain: selecting, nesting, restoring, and finding layers."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

from dial import DialError, DomainAlignment, use_domain
from dial.layers import domain_layers


def means(layer: DomainAlignment) -> list[float]:
    assert layer.location is not None
    return [round(float(value), 3) for value in layer.location[:, 0]]


def test_contexts_nest_and_are_restored_when_an_exception_passes() -> None:
    layer = DomainAlignment(1, domains=("a", "b", "c"), momentum=1.0)
    x = torch.randn(50, 1)
    x -= x.mean()

    def inner_failure() -> None:
        with use_domain(layer, "b"):
            layer(x + 2)
            raise KeyError

    with use_domain(layer, "a"):
        layer(x + 1)
        with pytest.raises(KeyError):
            inner_failure()
        layer(x + 5)
    layer(x + 3)  # outside: the last domain
    assert means(layer) == [5, 2, 3]


def test_each_network_has_its_own_choice() -> None:
    teacher, student = DomainAlignment(1, momentum=1.0), DomainAlignment(1, momentum=1.0)
    with use_domain(teacher, "source"), use_domain(student, "target"):
        teacher(torch.tensor([[1.0], [3.0]]))
        student(torch.tensor([[1.0], [3.0]]))
    assert means(teacher) == [2, 0]
    assert means(student) == [0, 2]


def test_unknown_domains_and_counts_are_errors_that_name_the_choices() -> None:
    model = nn.Sequential(nn.Linear(2, 3), DomainAlignment(3))
    with pytest.raises(DialError, match="one of the domains source, target, got 'webcam'"):
        use_domain(model, "webcam").__enter__()
    with pytest.raises(DialError, match="one of the domains source, target, got 'x'"):
        use_domain(model, {"source": 1, "x": 2}).__enter__()
    for counts in ({}, {"source": -1}, {"source": 2.0}):
        with pytest.raises(DialError, match="how many samples of each domain"):
            use_domain(model, counts).__enter__()
    with (
        use_domain(model, {"source": 3, "target": 2}),
        pytest.raises(DialError, match=r"of 5 samples .*'source': 3, 'target': 2.*got 4 samples"),
    ):
        model(torch.randn(4, 2))
    with pytest.raises(DialError, match="a network with DA-layers, got a Linear without any"):
        use_domain(nn.Linear(2, 3), "source").__enter__()


def test_layers_that_come_later_are_used_too() -> None:
    spare = DomainAlignment(3, momentum=1.0)
    model = nn.Sequential(nn.Linear(2, 3), DomainAlignment(3, momentum=1.0))

    def step() -> None:
        with use_domain(model, "source"):
            model(torch.randn(4, 2))

    step()
    model.append(spare)  # made before the first step, moved in after it
    step()
    step()
    assert spare.num_batches_tracked.tolist() == [2, 0]
    model.insert(1, DomainAlignment(3))
    step()
    assert [layer.num_batches_tracked.tolist() for layer in domain_layers(model).values()] == [
        [1, 0],
        [4, 0],
        [3, 0],
    ]


def test_modules_of_other_people_are_not_watched() -> None:
    hooks = [name for name in vars(nn.modules.module) if name.startswith("_global_")]
    assert "_global_module_registration_hooks" in hooks
    assert not any(getattr(nn.modules.module, name) for name in hooks)


def test_copies_start_outside_and_networks_are_not_kept_alive() -> None:
    model = nn.Sequential(DomainAlignment(3))
    with use_domain(model, "source"):
        twin = copy.deepcopy(model)
        twin(torch.randn(4, 3))
    assert next(iter(domain_layers(twin).values())).num_batches_tracked.tolist() == [0, 1]
    layer = DomainAlignment(3)
    with use_domain(layer, "source"):
        pass
    gone = weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None
