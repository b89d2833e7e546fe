"""pytorch-adapt: its hooks in a plain loop, as its documentation shows."""

from typing import Any

from pytorch_adapt.hooks import ClassifierHook, DANNHook, MCCHook
from pytorch_adapt.models import Discriminator

from benchmarks._peers.task import DOMAIN_WEIGHT, Task


def predict(name: str, task: Task) -> Any:
    """Returns the classes that the trained network gives the target, `(N,)`."""
    size = task.backbone.num_features
    discriminator = Discriminator(in_size=size) if name == "DANN" else None
    network, optimizer = task.network(discriminator)
    network.train()
    models = {"G": network[0], "C": network[1], "D": discriminator}
    if name == "DANN":
        hook = DANNHook([optimizer], gradient_reversal_weight=DOMAIN_WEIGHT)
    else:
        hook = ClassifierHook([optimizer], post=[MCCHook()])
    for source, labels, target, *_ in task.steps(optimizer):
        assert target is not None  # noqa: S101 - asked for
        images = {"src_imgs": source, "target_imgs": target, "src_labels": labels}
        domains = {"src_domain": labels.new_zeros(len(labels))}
        domains["target_domain"] = labels.new_ones(len(target))
        hook({**models, **images, **domains}, {})
    return task.predict(network)
