"""Pseudo-labels: a weighted cross-entropy, and tensors that a checkpoint keeps."""

import pytest
import torch

from dial import DialError
from dial.methods._pseudo_labels import PseudoLabels


def test_pseudo_labels_weigh_images_and_survive_a_checkpoint() -> None:
    pseudo, logits = PseudoLabels(), torch.randn(4, 3)
    pseudo.renew({"target": (torch.tensor([2, 0, 1]), torch.tensor([1.0, 0.5, 0.0]))})
    places = torch.tensor([1, 0, 9, 2])  # the third image has no label
    each = -logits.log_softmax(1)
    wanted = (0.5 * each[0, 0] + each[1, 2]) / 4
    torch.testing.assert_close(pseudo.cross_entropy(logits, places), wanted)
    other = PseudoLabels()
    other.load_state_dict(pseudo.state_dict())
    assert torch.equal(other.labels, pseudo.labels)
    assert torch.equal(other.weights, pseudo.weights)


def test_several_targets_have_places_one_after_the_other() -> None:
    pseudo, logits = PseudoLabels(), torch.randn(4, 3)
    first, second = torch.tensor([2, 0]), torch.tensor([1])
    labels = {"webcam": (first, torch.ones(2)), "dslr": (second, torch.ones(1))}
    pseudo.renew(labels, {"webcam": 0, "dslr": 5})  # webcam has five images, two with labels
    places = torch.tensor([5, 0, 3, 6])
    each = -logits.log_softmax(1)
    wanted = (each[0, 1] + each[1, 2]) / 4
    torch.testing.assert_close(pseudo.cross_entropy(logits, places), wanted)


def test_a_batch_without_places_is_refused() -> None:
    with pytest.raises(DialError, match="the places of the batch's target images"):
        PseudoLabels().cross_entropy(torch.randn(4, 3), None)
