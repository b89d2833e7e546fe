"""The named benchmarks are sound: rows that methods accept, figures that add up."""

from pathlib import Path

import numpy as np
import pytest

from dial import DialError, methods
from dial.benchmarking import benchmarks, paper
from dial.benchmarking.benchmarks import BENCHMARKS, Benchmark, get
from dial.benchmarking.cells import plan
from dial.data.datasets import get as data_set
from dial.references import REFERENCES
from dial.training import settings


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)
def test_every_row_is_accepted_by_its_method_and_every_task_has_its_domains(
    benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert len({row.name for row in benchmark.rows}) == len(benchmark.rows)
    for preset in settings.PRESETS:
        cells = plan(
            benchmark,
            out=tmp_path_factory.getbasetemp(),
            tasks=benchmark.tasks[:1],
            rows=benchmark.rows,
            seeds=[0],
            preset=preset,
            settings={},
        )
        for cell in cells:
            chosen = cell.settings()
            method = methods.create(chosen.method, chosen.options)
            if cell.row.name.endswith("_no_entropy"):
                assert method.entropy == 0
            elif cell.row.method == "dial":
                assert method.entropy > 0
    for task in benchmark.tasks:
        for domain in task.domains:
            name, _, part = domain.partition(":")
            assert part in data_set(name).domains


def test_the_grids_are_those_of_the_paper() -> None:
    assert [task.name for task in get("office31").tasks] == [*paper.TASKS]
    assert [row.name for row in get("office31").choose_rows(None)] == [
        "source_only", "frozen", "ddc", "dan", "revgrad", "adabn", "adabn_coral", "dial",
    ]  # fmt: skip
    with_source = {name for name in methods.names() if methods.kind(name).needs_source}
    assert {row.method for row in get("digits").rows} == with_source
    ablation = get("office31-ablation")
    ours = {(row.label, row.entropy) for row in ablation.rows}
    theirs = {(row.method, row.entropy) for row in paper.TABLE_2}
    assert {label for label, _ in ours - theirs} == {
        "Frozen, with a head",
        "DIAL Anchored", "DIAL Anchored, centroids", "DIAL Anchored, probe too",
    }  # fmt: skip
    assert all((label, not entropy) in ours for label, entropy in ours if "DIAL" in label)
    assert theirs <= ours
    assert {row.method for row in paper.TABLE_2} <= {row.label for row in ablation.rows}


def test_every_reference_has_a_row_but_the_one_that_needs_pretrained_statistics() -> None:
    rows = get("digits-references").choose_rows(None)
    names = {str(row.options["reference"]).partition(":")[0] for row in rows if row.options}
    assert names == {*REFERENCES.names()} - {"anchored"}


@pytest.mark.parametrize("row", [*paper.TABLE_1, *paper.TABLE_2])
def test_the_papers_averages_are_the_means_of_its_rows(row: paper.PaperRow) -> None:
    assert len(row.accuracies) == 6
    given = [accuracy for accuracy in row.accuracies if accuracy is not None]
    if row.average is None:
        assert len(given) < 6
    elif (row.method, row.entropy) == ("DIAL sparse", True):  # the one that does not add up
        assert (round(float(np.mean(given)), 1), row.average) == (76.6, 76.5)
    else:
        assert abs(np.mean(given) - row.average) <= 0.1 + 1e-9


@pytest.mark.parametrize("name", ["digits-ablation", "office31-ablation"])
def test_entropy_alone_is_the_loss_that_da_layers_have(name: str) -> None:
    benchmark = get(name)
    cells = plan(
        benchmark,
        out=Path("out"),
        tasks=benchmark.tasks[:1],
        rows=benchmark.choose_rows("entropy_only,dial_bn"),
        seeds=[0],
        preset=None,
        settings={},
    )
    alone, layers = (
        methods.create(chosen.method, chosen.options)
        for chosen in (cell.settings() for cell in cells)
    )
    assert alone.entropy == layers.entropy > 0
    assert alone.warmup == layers.warmup


def test_tasks_and_rows_by_name() -> None:
    office = get("office31")
    for text in ("A-W,d-a", "amazon-webcam, DSLR-amazon", "a->w,D->A"):
        assert [task.name for task in office.choose_tasks(text)] == ["A->W", "D->A"]
    assert [row.name for row in office.choose_rows("dial-BN,ddc")] == ["ddc", "dial_bn"]
    with pytest.raises(DialError, match=r"tasks of office31 \(A-W, .*\), got 'a-b'; fix"):
        office.choose_tasks("A-W,A-B")
    with pytest.raises(DialError, match=r"rows of office31 \(source_only, .*got 'magic'"):
        office.choose_rows("dial,magic")
    with pytest.raises(DialError, match=r"one of the benchmarks office31, .*got 'office32'"):
        benchmarks.get("office32")
