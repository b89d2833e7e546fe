"""SHOT against a version of its own in numpy."""

import numpy as np
import torch

from dial import losses, methods
from dial.methods import Batch, Images
from dial.methods.shot import centroid_labels

from .small import backbone


def labels_by_loops(features: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Pseudo-labels as the paper describes them: two rounds of centroids, nearest by cosine."""
    rows, classes = logits.shape
    vectors = np.concatenate([features, np.ones((rows, 1))], 1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    e = np.exp(logits - logits.max(1, keepdims=True))
    weights = e / e.sum(1, keepdims=True)
    predicted = set(logits.argmax(1).tolist())
    for _ in range(2):
        found = np.zeros(rows, int)
        for i in range(rows):
            best = -np.inf
            for k in sorted(predicted):
                center = (weights[:, k : k + 1] * vectors).sum(0) / max(weights[:, k].sum(), 1e-8)
                cosine = vectors[i] @ center / max(np.linalg.norm(center), 1e-12)
                if cosine > best:
                    best, found[i] = cosine, k
        weights = np.eye(classes)[found]
    return found


def test_labels_are_those_of_the_paper() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 6, generator=generator)
    logits = 2 * torch.randn(40, 5, generator=generator)
    logits[:, 3] = -9  # never predicted
    found = centroid_labels(features, logits)
    wanted = labels_by_loops(features.double().numpy(), logits.double().numpy())
    assert found.tolist() == wanted.tolist()
    assert 3 not in found


def test_first_the_source_then_the_target_with_a_fixed_classifier() -> None:
    method = methods.create("shot")
    trainee = method.prepare(backbone())
    source, target = torch.randn(8, 3, 8, 8), torch.randn(6, 3, 8, 8)
    labels, places = torch.arange(8) % 4, torch.arange(6)
    batch = Batch(source, labels, target, places)
    assert [set(terms) for terms in method.terms(trainee, batch, 0.0)] == [{"cross_entropy"}]
    method.refresh(trainee, Images((source,), labels, (target,)), {})
    (terms,) = method.terms(trainee.train(), batch, 0.5)
    assert set(terms) == {"information", "pseudo_labels"}
    sum(terms.values()).backward()  # type: ignore[union-attr]
    gradients = {n: p.grad for n, p in trainee.network.named_parameters()}
    assert all((grad is None) == name.startswith("5.") for name, grad in gradients.items())
    logits = trainee(target).logits
    torch.testing.assert_close(terms["information"], losses.information(logits))
    chosen = -logits.log_softmax(1)[places, trainee.extra.labels]  # type: ignore[union-attr, index]
    torch.testing.assert_close(terms["pseudo_labels"], 0.3 * chosen.mean())


def test_pseudo_labels_are_made_from_the_end_of_the_source_part_on() -> None:
    method = methods.create("shot", {"source_part": 0.4, "refits": 3})
    np.testing.assert_allclose(method.refreshes, [0.4, 0.6, 0.8])
