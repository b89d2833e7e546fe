"""Classifiers without fine-tuning, on features of the pretrained network.

    python -m benchmarks.heads --data DATA --image-size 224
    python -m benchmarks.heads FOLDER FOLDER --backbone resnet50_v1 --weights FILE

prints the accuracy on all transfers between the domains, by default those of Office-31, of logistic
regression on the source (C is chosen by three-fold cross-validation there), of the target's class
centroids in its place as with `--centroids`, and of the head of `--method frozen`. The targets are:

- whole: all images of the target;
- seen, unseen: the head is fitted to a random half and scored on both halves;
- third of the classes: the first third of the classes in the order of their names;
- long tail: each class keeps a part, from all images of a random class down to a tenth.

Every domain passes the network once. The target's labels are used for making these targets and for
scoring.
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegressionCV
from torch import Tensor, nn

from dial import backbones
from dial.backbones import Backbone
from dial.data.datasets import open_domain
from dial.data.evaluation import EvaluationBatches
from dial.data.prepare import prepare
from dial.data.transforms import Preprocessing
from dial.head import fit_head
from dial.methods import set_centroid_classifier
from dial.selection.outputs import observe

Features = tuple[Tensor, Tensor]
"""`(N, D)`, and their labels."""
OFFICE = ("office31:amazon", "office31:webcam", "office31:dslr")
REGRESSION, CENTROIDS, HEAD = "logistic regression", "with class centroids", "head"
_TAIL = 10.0


def main() -> None:
    """Extract the features of each domain, fit classifiers on each source, print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("domains", nargs="*", default=OFFICE, help="folders, or known domains")
    parser.add_argument("--data", help="folder that holds office31")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--cache-dir", help="where decoded images are kept")
    options = parser.parse_args()
    backbone = backbones.create(options.backbone, num_classes=2, weights=options.weights)
    places = {"data": options.data, "cache_dir": options.cache_dir}
    size = options.image_size
    domains = {_letter(d): extract(backbone, d, size=size, **places) for d in options.domains}
    columns = [f"{source}-{target}" for source, target in permutations(domains, 2)]
    print(f"| {options.backbone}, {size} px | | {' | '.join(columns)} | average |")
    print("|---" * (len(columns) + 3) + "|")
    regressions = {name: _regress(*each) for name, each in domains.items()}
    for title, measure in TARGETS.items():
        table: dict[str, list[float]] = {}
        for source, target in permutations(domains, 2):
            scores = measure(regressions[source], domains[source], domains[target])
            for row, accuracy in scores.items():
                table.setdefault(row, []).append(100 * accuracy)
        for row, values in table.items():
            numbers = " | ".join(f"{value:.1f}" for value in [*values, float(np.mean(values))])
            print(f"| {title} | {row} | {numbers} |", flush=True)


def extract(
    backbone: Backbone, domain: str, *, size: int, data: str | None, cache_dir: str | None
) -> Features:
    """Returns the features of all images of a domain, and their labels."""
    preprocessing = Preprocessing.for_network(backbone, size)
    opened = open_domain(domain, data=data)
    (prepared,) = prepare(
        (opened,),
        resize=preprocessing.resize,
        channels=preprocessing.channels,
        cache_dir=cache_dir,
    )
    images = EvaluationBatches(prepared.pixels, preprocessing=preprocessing)
    network = backbone.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    seen = observe(network, images, classifier=backbone.classifier, measured=0)
    assert prepared.labels is not None  # noqa: S101 - without them nothing can be scored
    return torch.from_numpy(seen.features), torch.from_numpy(prepared.labels.indices)


def score_whole(regression: nn.Sequential, source: Features, target: Features) -> dict[str, float]:
    """Returns the accuracy of each classifier on the target that it was fitted to."""
    features, labels = target
    return {
        REGRESSION: _accuracy(regression(features), labels),
        CENTROIDS: _accuracy(_centroids(regression, features)(features), labels),
        HEAD: _accuracy(_head(source, features)(features), labels),
    }


def score_halves(_: nn.Sequential, source: Features, target: Features) -> dict[str, float]:
    """Returns the accuracy of the head on the half that it was fitted to, and on the other."""
    features, labels = target
    seen, unseen = torch.randperm(len(labels), generator=_generator()).tensor_split(2)
    head = _head(source, features[seen])
    return {
        f"{HEAD}, seen": _accuracy(head(features[seen]), labels[seen]),
        f"{HEAD}, unseen": _accuracy(head(features[unseen]), labels[unseen]),
    }


def score_third(regression: nn.Sequential, source: Features, target: Features) -> dict[str, float]:
    """Returns accuracies on a target that lacks two thirds of the classes."""
    features, labels = target
    few = third_of_classes(labels)
    return score_whole(regression, source, (features[few], labels[few]))


def score_tail(regression: nn.Sequential, source: Features, target: Features) -> dict[str, float]:
    """Returns accuracies on a target with ten times as much of one class as of another."""
    features, labels = target
    some = long_tail(labels)
    return score_whole(regression, source, (features[some], labels[some]))


def third_of_classes(labels: Tensor) -> Tensor:
    """Returns the rows of the first third of the classes."""
    return (labels < round(len(labels.unique()) / 3)).nonzero().flatten()


def long_tail(labels: Tensor) -> Tensor:
    """Returns rows with ten times as much of one class as of another."""
    generator, classes = _generator(), labels.unique()
    rows = []
    for rank, label in enumerate(torch.randperm(len(classes), generator=generator)):
        members = (labels == classes[label]).nonzero().flatten()
        kept = max(1, round(len(members) * _TAIL ** (-rank / (len(classes) - 1))))
        rows.append(members[torch.randperm(len(members), generator=generator)[:kept]])
    return torch.cat(rows)


TARGETS: dict[str, Callable[[nn.Sequential, Features, Features], dict[str, float]]] = {
    "whole": score_whole,
    "halves": score_halves,
    "third of the classes": score_third,
    "long tail": score_tail,
}


def _regress(features: Tensor, labels: Tensor) -> nn.Sequential:
    kind = partial(LogisticRegressionCV, Cs=[0.01, 0.1, 1.0], cv=3, max_iter=300)
    fitted = kind(scoring="accuracy", use_legacy_attributes=False).fit(
        features.numpy(), labels.numpy()
    )
    return _network(torch.from_numpy(fitted.coef_), torch.from_numpy(fitted.intercept_))


def _centroids(regression: nn.Sequential, features: Tensor) -> nn.Sequential:
    network = _network(*(p.detach() for p in regression[1].parameters()))
    set_centroid_classifier(network, features.split(64), classifier="1")
    return network


def _head(source: Features, target: Tensor) -> nn.Sequential:
    features, labels = source
    fitted = fit_head([(features, target)], labels, num_classes=int(labels.max()) + 1)
    return _network(fitted.weight, fitted.bias)


def _network(weight: Tensor, bias: Tensor) -> nn.Sequential:
    linear = nn.Linear(*weight.t().shape)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return nn.Sequential(nn.Identity(), linear).eval()


def _accuracy(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(1) == labels).float().mean())


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _letter(domain: str) -> str:
    return (domain.partition(":")[2] or Path(domain).name)[0].upper()


if __name__ == "__main__":
    main()
