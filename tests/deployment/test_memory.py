"""What a run keeps of its source: centroids of groups, and the pretrained network behind it."""

from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import save_file

import dial
from dial.deployment import memory
from dial.deployment.memory import find_prototypes
from dial.deployment.origin import open_origin

from ..conftest import SETTINGS


def test_groups_of_a_class_have_a_centroid_each() -> None:
    generator = torch.Generator().manual_seed(0)
    middles = torch.tensor([[0.0, 9.0], [9.0, 0.0], [9.0, 9.0], [-9.0, 0.0]])
    group = torch.tensor([0, 1, 2]).repeat(4)
    features = middles[group] + 0.1 * torch.randn(12, 2, generator=generator)
    features = torch.cat([features, middles[3:].repeat(3, 1)])  # a class of three images
    labels = torch.tensor([4] * 12 + [1] * 3)
    with patch.object(memory, "GROUPS", 3):
        found = find_prototypes(features, labels)
    assert found.pretrained is None
    assert found.labels.tolist() == [1, 4, 4, 4]
    mean = features.mean(0)
    wanted = [features[:12][group == number].mean(0) - mean for number in range(3)]
    distances = torch.cdist(found.centroids[1:], torch.stack(wanted))
    assert distances.amin(1).max() < 1e-5
    assert sorted(distances.argmin(1).tolist()) == [0, 1, 2]
    torch.testing.assert_close(found.centroids[0], middles[3] - mean)


def test_groups_are_those_of_the_pretrained_network() -> None:
    before = torch.tensor([[0.0], [0.0], [5.0], [5.0], [9.0], [9.0]])
    features = torch.randn(6, 2)
    found = find_prototypes(features, torch.zeros(6, dtype=torch.int64), pretrained=before)
    assert found.pretrained is not None
    order = found.pretrained.flatten().argsort()
    pairs = features.view(3, 2, 2).mean(1) - features.mean(0)
    torch.testing.assert_close(found.centroids[order], pairs)
    wanted = torch.tensor([[0.0], [5.0], [9.0]]) - before.mean()
    torch.testing.assert_close(found.pretrained[order], wanted)


def test_a_run_knows_the_network_that_it_was_trained_from(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    weights = tmp_path / "public.safetensors"
    public = dial.build("timm:test_resnet", num_classes=1000, weights="none").state_dict()
    save_file(public, weights)
    options = SETTINGS | {"method": "source_only", "backbone": "timm:test_resnet", "report": True}
    options |= {"weights": str(weights), "cache_dir": str(tmp_path / "cache")}
    run = dial.adapt(*folders, out=tmp_path / "run", **options)
    origin = open_origin(run.folder)
    assert origin.pretrained is not None
    assert origin.prototypes is not None
    assert origin.prototypes.pretrained is not None
    assert not torch.equal(origin.prototypes.pretrained, origin.prototypes.centroids)
    own = origin.pretrained.network.state_dict()
    assert all(torch.equal(own[name], public[name]) for name in own if "fc." not in name)
    new = dial.adapt(model=run, target=folders[1], out=tmp_path / "new", steps=3, quiet=True)
    assert open_origin(new.folder).weights == str(weights)  # handed on

    changed = {name: 2 * tensor for name, tensor in public.items()}
    save_file(changed, weights)  # another network: its features are not those of the prototypes
    other = open_origin(run.folder)
    assert other.pretrained is None
    assert other.prototypes is not None
    assert other.prototypes.pretrained is None
    assert other.digest != origin.digest
    weights.unlink()
    assert open_origin(run.folder).digest == other.digest
    assert memory.load(run.folder, run.model).prototypes is not None


def test_many_classes_have_fewer_groups() -> None:
    labels = torch.arange(2400) // 6
    found = find_prototypes(torch.randn(2400, 2), labels)
    assert len(found.labels) == 400 * 3  # six images are three groups at most
    with patch.object(memory, "MOST", 800):
        assert len(find_prototypes(torch.randn(2400, 2), labels).labels) == 800
