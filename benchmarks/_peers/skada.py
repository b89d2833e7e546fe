"""skada: deep methods on our batches, shallow ones on features of the frozen network."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import skada
import torch
from skada import deep
from skada.deep.modules import DomainClassifier
from sklearn.linear_model import LogisticRegressionCV
from torch import nn

from benchmarks._peers import ours
from benchmarks._peers.task import DOMAIN_WEIGHT, Task
from dial.selection.outputs import observe

COMPONENTS = 100
DEEP = {"DeepCORAL": deep.DeepCoral, "DANN": deep.DANN, "MCC": deep.MCC}
SHALLOW = {
    "no adaptation": lambda: None,
    "TCA": lambda: skada.TransferComponentAnalysisAdapter(n_components=COMPONENTS),
    "SA": lambda: skada.SubspaceAlignmentAdapter(n_components=COMPONENTS, random_state=0),
    "CORAL": skada.CORALAdapter,
    # With its default of 1e-8 it fails where there are fewer images than features.
    "LinearOT": lambda: skada.LinearOTMappingAdapter(reg=1e-3),
}
SOURCE, TARGET = 1, -2  # skada tells domains by their sign


def predict(name: str, task: Task) -> Any:
    """Returns the classes that a method gives the target, `(N,)`."""
    return _predict_deep(name, task) if name in DEEP else _predict_shallow(name, task)


def _predict_deep(name: str, task: Task) -> Any:
    more: dict[str, Any] = {}
    if name == "DANN":
        # It ends in a softmax over its single output, which is always 1: nothing would be learnt.
        more["domain_classifier"] = DomainClassifier(num_features=task.backbone.num_features)
        more["domain_classifier"].classifier[-1] = nn.Sigmoid()
        more["reg"] = DOMAIN_WEIGHT
    network, optimizer = task.network(more.get("domain_classifier"))

    def batches(*_: Any, **__: Any) -> Iterator[tuple[dict[str, Any], torch.Tensor]]:
        for source, labels, target, *_rest in task.steps(optimizer):
            assert target is not None  # noqa: S101 - asked for
            domains = torch.tensor([SOURCE] * len(source) + [TARGET] * len(target))
            masked = torch.cat([labels, labels.new_full((len(target),), -1)])
            yield {"X": torch.cat([source, target]), "sample_domain": domains}, masked

    # skorch builds the optimizer and reads the data itself; here both are ours.
    options = {"optimizer": lambda *_, **__: optimizer, "max_epochs": 1, "train_split": None}
    net = DEEP[name](network, layer_name="0", **options, **more)
    net.set_params(iterator_train=batches, callbacks__print_log=None)
    unused = np.zeros((2, 1), np.float32)
    net.fit(unused, np.array([0, -1]), sample_domain=np.array([SOURCE, TARGET]))
    return task.predict(network)


def _predict_shallow(name: str, task: Task) -> Any:
    source, target = _features(task)
    features = np.concatenate([source, target]).astype(np.float64)  # in float32 LinearOT fails
    labels = np.concatenate([task.source.labels.indices, np.full(len(target), -1)])
    domains = np.repeat([SOURCE, TARGET], [len(source), len(target)])
    regression = LogisticRegressionCV(
        Cs=np.logspace(-2, 3, 6),
        cv=3,
        max_iter=300,
        scoring="accuracy",
        use_legacy_attributes=False,
    )
    steps = [step for step in (SHALLOW[name](), regression) if step is not None]
    pipeline = skada.make_da_pipeline(*steps)
    pipeline.fit(features, labels, sample_domain=domains)
    return pipeline.predict(features[len(source) :], sample_domain=domains[len(source) :])


def _features(task: Task) -> list[Any]:
    """Returns the classifier's inputs for both domains; random networks learn the source first."""
    classifier, network = task.backbone.classifier, task.backbone.network
    if not task.backbone.pretrained:
        network = ours.train("source_only", task)
        task.ticks.clear()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    domains = (task.source.pixels, task.target)
    return [
        observe(network, task.images(pixels), classifier=classifier, measured=0).features
        for pixels in domains
    ]
