"""No way for a target label to reach training: not as data, not through names or order."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

from dial.data.batches import Batch, Batches
from dial.data.datasets import open_domain
from dial.data.domain import Domain
from dial.data.evaluation import EvaluationBatches
from dial.data.prepare import prepare
from dial.data.transforms import Preprocessing

from ..conftest import MakeFolder

SMALL = Preprocessing(size=6, resize=8)


def tensors(source: Path, target: Domain, *, cache: Path | None) -> list[torch.Tensor]:
    """All that training and calibration would see of both domains."""
    first, second = prepare(
        [open_domain(source), target],
        resize=8,
        cache_dir=cache,
        use_cache=cache is not None,
        quiet=True,
    )
    assert first.labels is not None
    batches = Batches(
        first.pixels, first.labels, second.pixels, preprocessing=SMALL, batch_size="4+3", seed=5
    )
    seen = [tensor for _ in range(2) for batch in batches for tensor in batch if tensor is not None]
    loader = EvaluationBatches(second.pixels, preprocessing=SMALL, batch_size=5, by_content=True)
    return [*seen, *loader]


@pytest.mark.parametrize("cached", [True, False])
def test_shuffling_or_removing_the_targets_labels_changes_nothing(
    make_folder: MakeFolder, tmp_path: Path, cached: bool
) -> None:
    source = make_folder("source", {"mug": 6, "pen": 6})
    target = make_folder("target", {"mug": 6, "pen": 5}, seed=500)
    images = sorted(target.rglob("*.png"))
    random = np.random.default_rng(0)
    for number, image in enumerate(images):
        label = random.choice(["mug", "pen"])
        for place in (f"shuffled/{label}/{number}.png", f"flat/{random.bytes(8).hex()}.png"):
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place).write_bytes(image.read_bytes())
    lines = [f"{image} {random.choice(['mug', 'pen'])}" for image in reversed(images)]
    (tmp_path / "list.txt").write_text("\n".join(lines))

    cache = tmp_path / "cache" if cached else None
    expected = tensors(source, open_domain(target), cache=cache)
    for other in (
        open_domain(target, unlabelled=True),
        open_domain(tmp_path / "shuffled"),
        open_domain(tmp_path / "flat"),
        open_domain(tmp_path / "list.txt"),
    ):
        found = tensors(source, other, cache=cache)
        assert len(found) == len(expected)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_training_has_no_place_for_a_targets_label() -> None:
    given = ("labelled", "known")  # labels that the user hands over for training; none otherwise
    assert Batch._fields == ("source", "labels", "target", "places", *given)
    assert [Batch._field_defaults[name] for name in given] == [None, None]
    parameters = inspect.signature(Batches).parameters
    names = [name for name in parameters if "label" in name or "class" in name]
    assert names == ["labels", "labelled"]
    assert parameters["labelled"].default is None
