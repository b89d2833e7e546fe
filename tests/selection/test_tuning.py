"""A setting chosen without labels: the same however it is interrupted, shared or mislabelled."""

import json
import signal
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import dial
from dial import DialError
from dial.selection import outputs, tuning, validators
from dial.selection.outputs import Outputs
from dial.training import engine, grid
from dial.training.settings import Settings

from ..commands import Command
from ..commands import run as run_command
from ..conftest import (
    CLASSES,
    SETTINGS,
    move_into_shuffled_folders,
    picture,
    slow,
)

GRID = (0.0, 0.1, 1.0)
# A small grid, and no pictures for a report, which take most of the time.
CHANGES = {"dial.selection.tuning.GRID": GRID, "dial.reporting.record.record": None}

EACH_VALIDATOR = [name if name == validators.DEFAULT else slow(name) for name in validators.names()]


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Enough bright drawings to hold 30 of them out, and some dark ones."""
    root = tmp_path_factory.mktemp("drawings")
    generator = np.random.default_rng(0)
    for domain, dark, count in (("bright", False, 14), ("dark", True, 8)):
        for kind in CLASSES:
            (root / domain / kind).mkdir(parents=True)
            for index in range(count):
                image = picture(kind, generator, dark=dark)
                image.save(root / domain / kind / f"{index}.png")
    return root / "bright", root / "dark"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    own = {"epochs": 3, "batch_size": "4+4", "holdout": 0.75, "entropy": "auto"}
    return SETTINGS | own | {"cache_dir": str(tmp_path / "cache"), "out": tmp_path / "run"}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CHANGES.items():
        monkeypatch.setattr(name, value)


def start(domains: tuple[Path, Path], settings: dict[str, Any]) -> Command:
    settings = {k: v for k, v in settings.items() if k not in ("quiet", "report")}
    options = [f"--{k.replace('_', '-')}={v}" for k, v in settings.items()]
    return Command("adapt", *domains, *options, "--resume", changes=CHANGES)


def told(run: dial.Run) -> Any:
    """What must not depend on how the search went: the choice, the scores and the weights."""
    trials = [{k: v for k, v in row.items() if k != "seconds"} for row in run.result["trials"]]
    files = ("model.safetensors", "outputs.safetensors", "metrics.jsonl")
    return run.result["chosen"], trials, [(run.folder / name).read_bytes() for name in files]


def test_the_chosen_trial_is_the_run_as_if_its_value_had_been_given(
    drawings: tuple[Path, Path],
    settings: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = dial.adapt(*drawings, **settings | {"quiet": False})
    shown = capsys.readouterr().err
    trials, _, chosen_run = shown.partition("outcome")  # the head of the table of trials
    assert "target accuracy" not in trials
    assert chosen_run.count("target accuracy") == 1
    chosen = run.result["chosen"]
    assert chosen["validator"] == validators.DEFAULT
    rows = run.result["trials"]
    assert [row["entropy"] for row in rows] == list(GRID)
    kept = [row for row in rows if row["outcome"] != "worse on the source"]
    (best,) = [row for row in kept if row["entropy"] == chosen["entropy"]]
    higher = [row for row in kept if row["score"] > best["score"]]
    assert all(row["entropy"] > best["entropy"] for row in higher)  # equally good, and larger
    assert {row["outcome"] for row in higher} <= {"not clearly better"}
    right = {
        row["entropy"]: _right_of_source(run, row["entropy"])
        for row in rows
        if "stopped" not in row["outcome"]
    }
    assert all(
        right[row["entropy"]] < max(right.values()) - 1 for row in rows if row not in kept
    )  # one image alone tells nothing
    assert best["outcome"] == "chosen"
    assert f"{best['score']:.4f}" in shown
    for row in (
        row for row in rows if "stopped" not in row["outcome"]
    ):  # the scores are those of the trials' own outputs
        found = outputs.load(run.folder / "trials" / f"entropy-{row['entropy']:g}")
        assert validators.score(validators.DEFAULT, found) == row["score"]
    config = json.loads((run.folder / "config.json").read_text())
    assert config["chosen"] == chosen
    assert config["settings"]["options"]["entropy"] == chosen["entropy"]
    value = {"entropy": chosen["entropy"]}
    direct = dial.adapt(*drawings, **settings | value | {"out": tmp_path / "direct"})
    for name in ("model.safetensors", "outputs.safetensors", "metrics.jsonl"):
        assert (direct.folder / name).read_bytes() == (run.folder / name).read_bytes()
    ours = {k: v for k, v in run.result.items() if k not in ("chosen", "trials", "seconds")}
    assert ours == {k: v for k, v in direct.result.items() if k != "seconds"}
    # Finished, it is neither made again nor written over.
    assert dial.adapt(*drawings, **settings, resume=True).result == run.result
    assert dial.adapt(*drawings, **settings | value, resume=True).result == run.result
    for again in (settings, settings | value):
        with pytest.raises(DialError, match="which holds a run already; fix: pass --resume"):
            dial.adapt(*drawings, **again)
    with pytest.raises(DialError, match="validator was 'information_maximization', is 'source"):
        dial.adapt(*drawings, **settings, validator="source_accuracy", resume=True)
    with pytest.raises(DialError, match="got a run whose settings were given"):
        dial.adapt(*drawings, **settings | {"out": tmp_path / "direct"}, resume=True)
    assert not (tmp_path / "direct" / "trials").exists()


def test_a_trial_that_lost_the_source_is_set_aside(
    drawings: tuple[Path, Path], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings |= {"epochs": 1}  # nothing is stopped early
    monkeypatch.setattr(validators, "keep_the_source", lambda runs: [True] * len(runs))
    rows = dial.adapt(*drawings, **settings).result["trials"]
    first, second, _ = sorted(rows, key=lambda row: -row["score"])
    assert [row["outcome"] for row in (first, second)] == ["chosen", "finished"]
    assert first["entropy"] == max(row["entropy"] for row in rows)  # and clearly better
    sound = {row["entropy"]: row is not first for row in rows}
    monkeypatch.setattr(tuning, "_keeping_the_source", lambda _: sound)
    run = dial.adapt(*drawings, **settings | {"out": settings["out"].parent / "other"})
    assert run.result["chosen"]["entropy"] == second["entropy"]
    outcomes = {row["entropy"]: row["outcome"] for row in run.result["trials"]}
    assert outcomes[first["entropy"]] == "worse on the source"
    assert outcomes[second["entropy"]] == "chosen"


def test_of_trials_that_are_equally_good_the_smallest_value_is_taken(
    drawings: tuple[Path, Path], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Doubt(validators.Validator):
        def score(self, outputs: Outputs) -> float:
            return -validators.score(validators.DEFAULT, outputs)

    monkeypatch.setattr(validators, "as_good_as_the_best", lambda scores, _: [True] * len(scores))
    settings |= {"epochs": 1, "holdout": 0.0}  # all keep the source
    run = dial.adapt(*drawings, **settings, validator=Doubt())
    smallest, *others = run.result["trials"]
    assert smallest["outcome"] == "chosen"
    assert any(row["score"] > smallest["score"] for row in others)
    for row in others:
        better = row["score"] > smallest["score"]
        assert row["outcome"] == ("not clearly better" if better else "finished")


def _right_of_source(run: dial.Run, value: float) -> int:
    seen = outputs.load(run.folder / "trials" / f"entropy-{value:g}").held_out
    assert seen is not None
    pairs = zip(seen.logits.tolist(), seen.labels, strict=True)
    return sum(row.index(max(row)) == label for row, label in pairs)


def test_what_was_left_unfinished_in_a_trial_is_not_copied(
    drawings: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    settings |= {"epochs": 1}
    stop = patch.object(tuning, "_install", side_effect=KeyboardInterrupt)
    with stop, pytest.raises(engine.Interrupted):
        dial.adapt(*drawings, **settings)
    for trial in (settings["out"] / "trials").glob("entropy-*/"):
        (trial / ".last.ckpt-abcdefgh").touch()
    dial.adapt(*drawings, **settings, resume=True)
    assert [*(settings["out"] / "trials").glob("entropy-*/.*")]
    assert not [*settings["out"].glob(".*")]


def test_two_processes_share_the_trials(
    drawings: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    settings |= {"epochs": 1}  # nothing is stopped early, so that order does not matter
    processes = [start(drawings, settings) for _ in range(2)]
    shown = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], shown
    begun = [line for text in shown for line in text.splitlines() if line.startswith("trial ")]
    assert len(begun) == len(set(begun)) == len(GRID)
    alone = dial.adapt(*drawings, **settings | {"out": settings["out"].parent / "alone"})
    assert told(dial.deployment.runs.load(settings["out"])) == told(alone)


def test_asked_to_stop_it_says_how_to_go_on(
    drawings: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    process = start(drawings, settings | {"epochs": 500})
    trials = settings["out"] / "trials"
    while process.poll() is None and not [*trials.glob("*/last.ckpt")]:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate()
    assert process.returncode == 130, shown
    assert "resume with the same command and --resume" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("validator", EACH_VALIDATOR)
def test_target_labels_have_no_part_in_the_choice(
    validator: str, drawings: tuple[Path, Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    moved = move_into_shuffled_folders(drawings[1], tmp_path / "moved")
    settings |= {"validator": validator, "epochs": 2}
    found = []
    for number, (target, bare) in enumerate([(drawings[1], False), (moved, False), (moved, True)]):
        options = settings | {"out": tmp_path / f"run{number}", "unlabelled": bare}
        found.append(dial.adapt(drawings[0], target, **options))
    choice, trials, (weights, seen, _) = told(found[0])
    for other in found[1:]:
        assert told(other)[:2] == (choice, trials)
        assert told(other)[2][:2] == [weights, seen]
    assert found[2].result["target_accuracy"] is None


def test_a_trial_that_falls_behind_is_stopped(
    drawings: tuple[Path, Path], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial.selection.pruning.is_behind", lambda _, others: len(others) >= 2)
    with monkeypatch.context() as patch:
        patch.setattr(validators, "correct_on_source", lambda _: [])
        run = dial.adapt(*drawings, **settings)
    outcomes = sorted(row["outcome"] for row in run.result["trials"])
    assert outcomes == ["chosen", "finished", "stopped at epoch 2"]
    (stopped,) = [row for row in run.result["trials"] if row["outcome"].startswith("stopped")]
    assert not (run.folder / "trials" / f"entropy-{stopped['entropy']:g}" / "result.json").exists()
    one = dial.adapt(*drawings, **settings | {"out": settings["out"].parent / "one", "epochs": 1})
    assert not any("stopped" in row["outcome"] for row in one.result["trials"])


def test_the_best_on_the_source_is_not_stopped(
    drawings: tuple[Path, Path], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial.selection.pruning.is_behind", lambda *_: True)
    monkeypatch.setattr(validators, "correct_on_source", lambda _: [True, False])  # all are equal
    run = dial.adapt(*drawings, **settings)
    assert not any("stopped" in row["outcome"] for row in run.result["trials"])


def test_a_trial_that_diverges_is_left_out(
    drawings: tuple[Path, Path], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "GRID", (0.0, float(np.finfo(np.float32).max)))
    run = dial.adapt(*drawings, **settings | {"epochs": 2})
    assert [row["outcome"] for row in run.result["trials"]] == ["chosen", "failed"]
    assert run.result["trials"][1]["score"] is None
    with pytest.raises(DialError, match="a value of entropy with which training ends well"):
        dial.adapt(*drawings, **settings | {"lr": 1e30, "out": run.folder.parent / "none"})


def test_other_settings_can_be_tuned(drawings: tuple[Path, Path], settings: dict[str, Any]) -> None:
    run = dial.adapt(*drawings, **settings | {"epochs": 1, "entropy": 0.1, "tune": "sparsity"})
    assert set(run.result["chosen"]) == {"sparsity", "validator"}
    assert (run.folder / "trials" / "sparsity-0.1" / "result.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validator": "magic"}, r"one of the validators .*, got 'magic'"),
        (
            {"tune": "magic", "entropy": 0.1},
            r"the method dial to tune \(entropy, warmup, delay, spars",
        ),
        ({"tune": "sparsity"}, "got entropy, sparsity; fix: tune one of those"),
        ({"method": "source_only"}, "settings of the method source_only"),
        (
            {"method": "source_only", "entropy": None, "tune": "entropy"},
            r"the method source_only to tune \(it has none\), got entropy",
        ),
        ({"entropy": 0.1, "validator": "source_accuracy"}, "a setting to choose with the valid"),
        (
            {"holdout": 0.1, "validator": "source_accuracy"},
            r"which source_accuracy judges by, got 3 to hold out of the source's 42; fix: give a",
        ),
        ({"holdout": 0.0, "validator": "reverse_validation"}, "got 0 to hold out"),
    ],
)
def test_wrong_use_is_said_before_anything_is_trained(
    changes: dict[str, Any],
    message: str,
    drawings: tuple[Path, Path],
    settings: dict[str, Any],
) -> None:
    with pytest.raises(DialError, match=message):
        dial.adapt(*drawings, **settings | changes)
    assert not (settings["out"] / "trials").exists()


def test_the_command_says_what_it_takes(drawings: tuple[Path, Path], tmp_path: Path) -> None:
    done = run_command("adapt", *drawings, "--out", tmp_path / "run", "--entropy", "much")
    assert done.returncode == 2
    assert "wanted a number, or auto" in done.stderr
    assert "got 'much'" in done.stderr


def test_interrupted_while_waiting_for_others(
    drawings: tuple[Path, Path], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "run_grid", interrupt)
    with pytest.raises(engine.Interrupted):
        dial.adapt(*drawings, **settings)


def test_a_search_of_the_former_version_is_resumed(
    drawings: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    whole = dial.adapt(*drawings, **settings)
    expected, trials = told(whole), whole.folder / "trials"
    # As it was left then: a journal in place of records, and the validator's former name.
    for path in [*trials.glob("entropy-*.json"), whole.folder / "result.json"]:
        path.unlink()
    (trials / "entropy-0.1" / "result.json").unlink()
    (trials / "journal.log").write_text("{}\n")
    search = json.loads((trials / "search.json").read_text())
    assert search["search"]["validator"] == "information_maximization"
    search["search"]["validator"] = "information_maximisation"
    (trials / "search.json").write_text(json.dumps(search))
    assert told(dial.adapt(*drawings, **settings, resume=True)) == expected
    settings |= {"validator": "information_maximisation", "resume": True}
    with pytest.warns(FutureWarning, match="is now called information_maximization"):
        assert told(dial.adapt(*drawings, **settings)) == expected


class Confidence(validators.Validator):
    """A validator of one's own: the mean of the largest logits of the target."""

    def score(self, outputs: Outputs) -> float:
        return float(outputs.target.logits.max(1).mean())


def test_an_object_can_be_the_validator(
    drawings: tuple[Path, Path], settings: dict[str, Any]
) -> None:
    run = dial.adapt(*drawings, **settings | {"epochs": 1}, validator=Confidence())
    assert run.result["chosen"]["validator"] == "Confidence"
    for row in run.result["trials"]:
        logits = outputs.load(run.folder / "trials" / f"entropy-{row['entropy']:g}").target.logits
        assert row["score"] == pytest.approx(logits.max(1).mean())


def test_the_order_of_trials_follows_the_seed(tmp_path: Path) -> None:
    def order(seed: int) -> list[float]:
        search = tuning.Search("entropy", "source_accuracy", Settings(seed=seed))
        return [trial.value for trial in search.trials(tmp_path)]

    assert order(0) == order(0)
    assert sorted(order(0)) == list(GRID)
    assert len({tuple(order(seed)) for seed in range(10)}) > 1
