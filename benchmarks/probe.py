"""The baseline without fine-tuning: logistic regression on features of the pretrained network.

    python -m benchmarks.probe --data DATA --image-size 128

prints the accuracy on all six transfers of Office-31, of the regression itself and with the
target's class centroids in its place, as `--centroids` does. C is chosen by three-fold
cross-validation on the source; the target's labels are used for scoring only.
"""

import argparse
from functools import partial
from itertools import permutations

import numpy as np
import torch
from sklearn.linear_model import LogisticRegressionCV
from torch import nn

from dial import backbones
from dial.data.datasets import open_domain
from dial.data.evaluation import EvaluationBatches
from dial.data.prepare import prepare
from dial.data.transforms import Preprocessing
from dial.methods import set_centroid_classifier
from dial.selection.outputs import observe

DOMAINS = {"A": "amazon", "W": "webcam", "D": "dslr"}


def main() -> None:
    """Extract the features of each domain, fit a classifier on each source, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="folder that holds office31")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--cache-dir", help="where decoded images are kept")
    arguments = parser.parse_args()
    backbone = backbones.create(arguments.backbone, num_classes=31)
    network = backbone.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    preprocessing = Preprocessing.for_network(backbone, arguments.image_size)
    data = {}
    for letter, name in DOMAINS.items():
        domain = open_domain(f"office31:{name}", data=arguments.data)
        cache = {"cache_dir": arguments.cache_dir, "channels": preprocessing.channels}
        (prepared,) = prepare((domain,), resize=preprocessing.resize, **cache)
        images = EvaluationBatches(prepared.pixels, preprocessing=preprocessing)
        seen = observe(network, images, classifier=backbone.classifier, measured=0)
        assert prepared.labels is not None  # noqa: S101 - Office-31 has them
        data[letter] = seen.features, prepared.labels.indices
    kind = partial(LogisticRegressionCV, Cs=[0.01, 0.1, 1.0], cv=3, max_iter=300)
    kind = partial(kind, scoring="accuracy", use_legacy_attributes=False)
    regressions = {letter: kind().fit(*data[letter]) for letter in DOMAINS}
    rows: dict[str, dict[str, float]] = {"logistic regression": {}, "with class centroids": {}}
    for source, target in permutations("AWD", 2):
        features, labels = torch.from_numpy(data[target][0]), data[target][1]
        network = _as_network(regressions[source])
        for row in rows.values():
            predicted = network(features).argmax(1).numpy()
            row[f"{source}-{target}"] = 100 * float(np.mean(predicted == labels))
            set_centroid_classifier(network, features.split(64), classifier="1")
    for row in rows.values():
        row["average"] = float(np.mean([*row.values()]))
    heads = next(iter(rows.values()))
    print(f"| {arguments.backbone}, {preprocessing.size} px | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 1) + "|")
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in row.values()) + " |")


def _as_network(regression: LogisticRegressionCV) -> nn.Sequential:
    classes, features = regression.coef_.shape
    linear = nn.Linear(features, classes)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(regression.coef_))
        linear.bias.copy_(torch.from_numpy(regression.intercept_))
    return nn.Sequential(nn.Identity(), linear).eval()


if __name__ == "__main__":
    main()
