"""Many images go through ONNX Runtime: the same logits, in order, exported once."""

import copy
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dial
from dial import Run
from dial.deployment import runtime
from dial.deployment.prediction import BATCH, Predictions
from dial.deployment.runtime import NAME, Runtime, export_for_many, runtime_for

from ..conftest import MakeImage

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, make_image: MakeImage) -> Path:
    """Some batches of images, of which one file is bad."""
    root = tmp_path_factory.mktemp("many")
    for number in range(3 * BATCH + 5):
        make_image(root / f"{number:03}.png", seed=number)
    (root / "070.png").write_bytes(b"not an image")
    return root


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that pays for a hundred small images, and computes five at a time."""
    monkeypatch.setattr(runtime, "PAYS", 100 * 32 * 32)
    monkeypatch.setattr(runtime, "_AT_ONCE", 5 * 32 * 32)


@pytest.mark.usefixtures("cheap")
def test_predictions_are_those_of_the_network(finished: Run, many: Path, tmp_path: Path) -> None:
    run = replace(finished, folder=tmp_path)
    plain = Predictions(
        run.model, dial.predict(run, many).domains, CPU, runtime=runtime_for(run.model, CPU, None)
    )
    fast = dial.predict(run, many)
    for one, other in zip(plain, fast, strict=True):
        assert one.path == other.path
        assert one.confidence == pytest.approx(other.confidence, abs=1e-5)
    assert plain.bad == fast.bad != {}
    assert (tmp_path / NAME).is_file()


@pytest.mark.usefixtures("cheap")
def test_the_export_is_kept_and_replaced_by_that_of_another_network(
    finished: Run, tmp_path: Path
) -> None:
    said: list[str] = []
    model = replace(finished.model, network=copy.deepcopy(finished.network))
    kept = tmp_path / NAME

    def export() -> bytes | None:
        return export_for_many(model, images=1000, folder=tmp_path, say=said.append)

    first = export()
    assert first == kept.read_bytes()
    assert len(said) == 1
    assert export() == first
    assert len(said) == 1  # nothing was exported again
    kept.write_bytes(first[:-100])
    assert export() is not None
    assert len(said) == 2
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.mul_(1.1)
    other = export()
    assert other != first
    assert other == kept.read_bytes()


@pytest.mark.usefixtures("cheap")
def test_a_folder_that_cannot_be_written_costs_only_time(finished: Run, tmp_path: Path) -> None:
    said: list[str] = []
    taken = tmp_path / "file"
    taken.write_text("")
    content = export_for_many(finished.model, images=1000, folder=taken, say=said.append)
    assert content is not None
    assert said[-1] == f"{taken / NAME} cannot be written: the next time needs another export"


def test_few_images_do_not_pay(finished: Run, tmp_path: Path) -> None:
    side = finished.model.preprocessing.size
    few = runtime.PAYS // side**2 - 1
    assert export_for_many(finished.model, images=few, folder=tmp_path, say=print) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cheap")
def test_a_network_that_cannot_be_exported_is_run_itself(finished: Run, tmp_path: Path) -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            pooled = x.mean((2, 3))
            if float(pooled.sum()) > 1e9:  # depends on the data
                return self.layer(pooled) * 2
            return self.layer(torch.from_numpy(pooled.numpy().copy()))

    model = replace(finished.model, network=Odd())
    content = export_for_many(model, images=1000, folder=tmp_path, say=lambda _: None)
    assert content is None
    assert runtime_for(model, CPU, content).workers == 0


def test_batches_keep_their_order() -> None:
    def slow_at_first(images: Tensor) -> Tensor:
        time.sleep(0.05 if images[0] == 0 else 0)
        return images

    batches = [([str(number)], torch.tensor([number])) for number in range(20)]
    for workers in (0, 1, 3):
        assert [*Runtime(slow_at_first, workers).run(iter(batches))] == batches


def test_batches_are_made_with_one_thread_that_the_caller_does_not_notice() -> None:
    seen = []

    def batches() -> Iterator[tuple[list[str], Tensor]]:
        for number in range(3):
            seen.append(torch.get_num_threads())
            yield [str(number)], torch.tensor([number])
        raise OSError("gone")

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        of_caller = []
        with pytest.raises(OSError, match="gone"):  # noqa: PT012 - there is no result without the loop
            for _ in Runtime(lambda images: images, workers=1).run(batches()):
                of_caller.append(torch.get_num_threads())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert seen == [1, 1, 1]
    assert set(of_caller) == {2}
