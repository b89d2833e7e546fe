"""Several sources and several targets, from end to end: one network, a predictor for each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import dial
from dial import DialError, backbones, runs
from dial.cli import app
from dial.data.datasets import open_domain
from dial.data.prepare import prepare
from dial.methods.adabn_coral import AdaBNCoral
from dial.selection import outputs

from .conftest import CLASSES, SETTINGS, WITH_SOURCE, picture
from .oracles import network_input

MakeDomain = Callable[..., Path]
SHORT = SETTINGS | {"epochs": 1, "holdout": 0.0}


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Four domains of drawings: two bright ones, one of which lacks a class, and two dark ones."""
    root = tmp_path_factory.mktemp("several")
    generator = np.random.default_rng(7)
    kinds = {"noon": CLASSES, "morning": CLASSES[:2], "dusk": CLASSES, "night": CLASSES}
    for name, classes in kinds.items():
        for kind in classes:
            folder = root / name / kind
            folder.mkdir(parents=True)
            for index in range(7):
                drawn = picture(kind, generator, dark=name in ("dusk", "night"))
                drawn.save(folder / f"{index}.png")
    return {name: root / name for name in kinds}


def settings(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return SHORT | {"cache_dir": str(tmp_path / "cache"), "out": tmp_path / "run"} | more


def accuracy(run: dial.Run, folder: Path) -> float:
    """The share of images that the saved network gives the label of their folder."""
    files = sorted(folder.rglob("*.png"))
    images = torch.stack([network_input(path, run.model.preprocessing) for path in files])
    with torch.no_grad():
        found = run.network(images).argmax(1).tolist()
    return float(
        np.mean([run.model.classes[i] == f.parent.name for i, f in zip(found, files, strict=True)])
    )


@pytest.mark.parametrize("method", WITH_SOURCE)
def test_every_method_takes_several_sources_and_targets(
    method: str, domains: dict[str, Path], tmp_path: Path
) -> None:
    sources, targets = [domains["noon"], domains["morning"]], [domains["dusk"], domains["night"]]
    several = dial.adapt(sources, targets, **settings(tmp_path, method=method))
    assert [*several] == ["dusk", "night"]
    assert several.result["targets"]["dusk"]["target"] == str(domains["dusk"])
    mean = np.mean([run.result["target_accuracy"] for run in several.values()])
    assert several.result["target_accuracy"] == pytest.approx(mean)
    for name, run in several.items():
        assert run.folder == tmp_path / "run" / name
        assert run.model.classes == CLASSES
        assert run.result["target_accuracy"] == pytest.approx(accuracy(run, domains[name]))
        assert not any(type(m).__module__.startswith("dial") for m in run.network.modules())


def test_a_list_of_one_target_gives_a_mapping(domains: dict[str, Path], tmp_path: Path) -> None:
    found = dial.adapt(domains["noon"], [domains["dusk"]], **settings(tmp_path))
    assert [*found] == ["dusk"]
    assert found["dusk"].folder == found.folder == tmp_path / "run"
    assert found.result == found["dusk"].result


def test_a_source_has_statistics_of_its_own(domains: dict[str, Path], tmp_path: Path) -> None:
    sources = [domains["noon"], domains["morning"]]
    run = dial.adapt(sources, domains["dusk"], **settings(tmp_path))
    assert run.folder == tmp_path / "run"
    assert run.result["source"] == " + ".join(map(str, sources))
    state = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["trainee"]
    location = next(value for key, value in state.items() if key.endswith(".location"))
    assert len(location) == 3
    assert not torch.equal(location[0], location[1])
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["source"] == [*map(str, sources)]
    assert config["classes"] == [*CLASSES]
    again = dial.adapt(config=tmp_path / "run" / "config.json", out=tmp_path / "again")
    one, other = (load_file(each.folder / "model.safetensors") for each in (run, again))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_merged_sources_are_one_domain(domains: dict[str, Path], tmp_path: Path) -> None:
    sources = [domains["noon"], domains["morning"]]
    run = dial.adapt(sources, domains["dusk"], merge_sources=True, **settings(tmp_path))
    state = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["trainee"]
    assert len(next(value for key, value in state.items() if key.endswith(".location"))) == 2
    assert run.result["source"] == "+".join(map(str, sources))
    again = dial.adapt(config=tmp_path / "run" / "config.json", out=tmp_path / "again")
    one, other = (load_file(each.folder / "model.safetensors") for each in (run, again))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_that_was_stopped_ends_with_the_same_predictors(
    domains: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = [domains["dusk"], domains["night"]]
    options = settings(tmp_path, head=True, pseudo_labels=0.3, refits=1, epochs=2)
    whole = dial.adapt(domains["noon"], targets, **options)
    options["out"] = tmp_path / "stopped"
    with monkeypatch.context() as patch:  # after the first target is written

        def fail(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr("dial.pipeline.process.Process.conclude", fail)
        with pytest.raises(KeyboardInterrupt):
            dial.adapt(domains["noon"], targets, **options)
    assert not (tmp_path / "stopped" / "result.json").exists()
    resumed = dial.adapt(domains["noon"], targets, resume=True, **options)
    for name in whole:
        one, other = (
            load_file(each[name].folder / "model.safetensors") for each in (whole, resumed)
        )
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_the_command_takes_several_domains(domains: dict[str, Path], tmp_path: Path) -> None:
    run, call = tmp_path / "run", CliRunner().invoke
    options = ["--backbone", "timm:test_resnet", "--weights", "none", "--image-size", "32"]
    options += ["--steps", "2", "--batch-size", "8+4", "--holdout", "0", "--no-report", "-q"]
    noon, morning, dusk, night = map(str, domains.values())
    done = call(
        app,
        ["adapt", noon, morning, "--target", dusk, "--target", night, "--out", str(run), *options],
    )
    assert done.exit_code == 0, done.output
    assert {path.name for path in run.iterdir() if path.is_dir()} == {"dusk", "night"}
    done = call(app, ["predict", str(run), night, "--target", "night", "-q"])
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 1 + 21
    done = call(app, ["evaluate", str(run), night, "--target", "night", "--json", "-q"])
    result = json.loads((run / "night" / "result.json").read_text())
    assert json.loads(done.stdout)["accuracy"] == pytest.approx(result["target_accuracy"])
    with pytest.raises(DialError, match=r"one of the targets dusk, night .*got none named"):
        runs.load(run)
    with pytest.raises(DialError, match=r"one of the targets dusk, night .*got 'noon'"):
        runs.load(run, target="noon")
    with pytest.raises(DialError, match=r"a run with several targets in .*got 'night'"):
        runs.load(run / "night", target="night")
    several = tmp_path / "sources"
    done = call(app, ["adapt", noon, morning, dusk, "--out", str(several), *options])
    assert done.exit_code == 0, done.output
    assert json.loads((several / "result.json").read_text())["target"] == dusk


def test_check_shows_all_domains(domains: dict[str, Path]) -> None:
    noon, morning, dusk, night = map(str, domains.values())
    words = ["check", noon, morning, "--target", dusk, "--target", night, "-q"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    for role in ("source 1", "source 2", "target 1", "target 2"):
        assert role in done.output
    assert "no images of stripes, which other sources have" in done.output
    done = CliRunner().invoke(app, ["check", noon, morning, dusk, "--json", "-q"])
    report = json.loads(done.stdout)
    assert [domain["images"] for domain in report["sources"]] == [21, 14]
    assert report["target"]["images"] == 21


def test_a_setting_is_tuned_on_one_target(domains: dict[str, Path], tmp_path: Path) -> None:
    targets = [domains["dusk"], domains["night"]]
    with pytest.raises(DialError, match="one target to choose entropy for, got 2 targets"):
        dial.adapt(domains["noon"], targets, entropy="auto", **settings(tmp_path))


def test_each_source_is_judged_with_its_own_statistics(
    domains: dict[str, Path], tmp_path: Path
) -> None:
    """The finished outputs of the sources are those of their own networks, image by image."""
    sources = [domains["noon"], domains["dusk"]]  # a bright one and a dark one
    options = settings(tmp_path, method="adabn", report=True)
    run = dial.adapt(sources, domains["night"], **options)
    seen = outputs.load(run.folder)
    state = torch.load(run.folder / "last.ckpt", weights_only=True)["trainee"]
    backbone = backbones.create("timm:test_resnet", num_classes=3, weights="none", image_size=32)
    dial.convert(backbone.network, domains=("noon", "dusk", "night"))
    tensors = {k.removeprefix("network."): v for k, v in state.items()}
    backbone.network.load_state_dict(tensors)
    expected = []
    for name in ("noon", "dusk"):
        (domain,) = prepare([open_domain(domains[name])], resize=36, use_cache=False, quiet=True)
        paths = [domain.images.paths[row] for row in domain.pixels.order]
        images = torch.stack([network_input(path, run.model.preprocessing) for path in paths])
        with torch.no_grad(), dial.use_domain(backbone.network.eval(), name):
            expected.append(backbone.network(images))
    torch.testing.assert_close(
        torch.from_numpy(seen.training.logits), torch.cat(expected), atol=1e-3, rtol=1e-3
    )


def test_a_target_has_its_own_scores_and_page(domains: dict[str, Path], tmp_path: Path) -> None:
    targets = [domains["dusk"], domains["night"]]
    several = dial.adapt(domains["noon"], targets, **settings(tmp_path, report=True))
    both = several.history[-1]
    for name, run in several.items():
        last = run.history[-1]
        assert last["target_accuracy"] == both[f"target_accuracy_{name}"]
        assert not [key for key in last if key.endswith(("_dusk", "_night"))]
        page = (run.folder / "report.html").read_text()
        assert "target accuracy dusk" not in page
    with pytest.raises(DialError, match=r"one of the targets dusk, night .*got none named"):
        dial.report(several.folder)
    assert dial.report(several["dusk"], baseline=several["dusk"]).exists()


def test_the_network_without_adaptation_is_taken_before_any_target_is_finished(
    domains: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("unadapted", "finish"):
        inner = getattr(AdaBNCoral, name)

        def noted(self: Any, *args: Any, name: str = name, inner: Any = inner) -> Any:
            calls.append(name)
            return inner(self, *args)

        monkeypatch.setattr(AdaBNCoral, name, noted)
    targets = [domains["dusk"], domains["night"]]
    more = settings(tmp_path, method="adabn_coral", report=True)
    dial.adapt([domains["noon"], domains["morning"]], targets, **more)
    assert calls == ["unadapted"] * 3 + ["finish"] * 2


def test_a_search_over_merged_sources_holds_out_of_them_all(
    domains: dict[str, Path], tmp_path: Path
) -> None:
    options = settings(tmp_path, holdout=0.9, merge_sources=True, steps=1, entropy="auto")
    sources = [domains["noon"], domains["morning"]]  # 21 and 14 images
    run = dial.adapt(sources, domains["dusk"], validator="source_accuracy", **options)
    config = json.loads((run.folder / "config.json").read_text())
    assert config["source"] == "+".join(map(str, sources))
