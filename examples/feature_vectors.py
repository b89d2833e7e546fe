"""Feature vectors with scikit-learn: from MNIST's digits to scanned ones without labels.

A small network learns MNIST alone. Its features of both domains then go to two classifiers:
logistic regression, which knows the source, and `DomainAdaptationClassifier`, which sees the
target's unlabelled vectors too. Half a minute on two cores:

    python examples/feature_vectors.py
"""

import argparse
from typing import Any

import torch
import torch.nn.functional as F
from digits_data import distort, load, network
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from dial.sklearn import DomainAdaptationClassifier


def train_features(images: Tensor, labels: Tensor, *, steps: int) -> torch.nn.Module:
    """Returns a network without its classifier, trained on the source."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(images), (64,))
        optimizer.zero_grad()
        F.cross_entropy(model(distort(images[rows])), labels[rows]).backward()
        optimizer.step()
    return model[:-1].eval()


def main() -> None:
    """Fit both classifiers to the same features, and compare on the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    images, labels = load("mnist")
    others, truth = load("optdigits")  # the labels are for scoring alone
    features = train_features(images, labels, steps=options.steps)
    with torch.no_grad():
        X, X_target = features(images).numpy(), features(others).numpy()
    y, y_target = labels.numpy(), truth.numpy()

    plain = LogisticRegression(max_iter=300).fit(X, y)
    adapted: Any = DomainAdaptationClassifier().fit(X, y, X_target)
    for name, classifier in (("logistic regression", plain), ("DIAL's head", adapted)):
        print(f"{name}: accuracy on the target {classifier.score(X_target, y_target):.1%}")


if __name__ == "__main__":
    main()
