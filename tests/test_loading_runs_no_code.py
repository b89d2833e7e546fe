"""Files from others run no code: those that try end in an error of ours, or are made anew."""

import io
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import dial
from dial import DialError, Run
from dial.data.datasets import open_domain
from dial.data.prepare import prepare
from dial.deployment import memory, runs, runtime
from dial.reporting import record
from dial.selection import outputs

from .conftest import SETTINGS

TRACE = Path("executed")


class Harmful:
    """Pickles to a call that leaves a trace."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return Path.touch, (TRACE,)


@pytest.fixture(autouse=True)
def _nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not TRACE.exists()


def test_the_trace_is_left_by_what_loads_pickles() -> None:
    pickle.loads(pickle.dumps(Harmful()))
    assert TRACE.exists()
    TRACE.unlink()


def objects() -> dict[str, bytes]:
    """Files that run code where pickles are loaded, by their suffixes."""
    torch_file, array, arrays = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save({"fc.weight": Harmful()}, torch_file)
    np.save(array, np.array([Harmful()], dtype=object), allow_pickle=True)
    harmful = np.array([Harmful()], dtype=object)
    np.savez(arrays, digests=harmful, sizes=harmful, bad_rows=harmful, bad_reasons=harmful)
    return {
        "torch": torch_file.getvalue(),
        "pickle": pickle.dumps(Harmful(), protocol=2),
        "npy": array.getvalue(),
        "npz": arrays.getvalue(),
    }


@pytest.mark.parametrize("kind", ["torch", "pickle", "npz"])
@pytest.mark.parametrize("suffix", ["pth", "pt", "ckpt", "pt2", "npz", "safetensors", "onnx"])
def test_weights(suffix: str, kind: str, folders: tuple[Path, Path]) -> None:
    path = Path(f"weights.{suffix}")
    path.write_bytes(objects()[kind])
    named: dict[str, Any] = {"backbone": "timm:test_resnet", "out": "run", "quiet": True}
    ways: list[dict[str, Any]] = [{"source": folders[0], "weights": path}]
    ways.append({"model": path, "classes": ["a", "b"]})
    for given in ways:
        with pytest.raises(DialError, match=rf"weights.*weights\.{suffix}|in weights\.{suffix}"):
            dial.adapt(target=folders[1], **named, **given)


def test_an_onnx_file_whose_tensors_lie_elsewhere(folders: tuple[Path, Path]) -> None:
    secret = Path("secret.bin")
    secret.write_bytes(bytes(64))
    outside = helper.make_tensor("w", TensorProto.FLOAT, [16], bytes(64), raw=True)
    onnx.external_data_helper.set_external_data(outside, location=str(secret.resolve()))
    graph = helper.make_graph([], "g", [], [], initializer=[outside])
    Path("net.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(DialError, match=r"a file of weights, \.pth or \.safetensors, got net.onnx"):
        dial.adapt(
            model="net.onnx", backbone="timm:test_resnet", classes=["a", "b"],
            target=folders[1], out="run", quiet=True,
        )  # fmt: skip


def test_an_onnx_file_in_a_run_whose_tensors_lie_elsewhere(
    copied: Path, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "PAYS", 0)
    said: list[str] = []
    export = partial(
        runtime.export_for_many, finished.model, images=1, folder=copied, say=said.append
    )
    export()
    network = onnx.load(copied / runtime.NAME)
    tensor = next(each for each in network.graph.initializer if each.raw_data)
    secret = Path("secret.bin")
    secret.write_bytes(tensor.raw_data)  # the very ones: only their place is wrong
    onnx.external_data_helper.set_external_data(tensor, location=str(secret.resolve()))
    tensor.ClearField("raw_data")
    (copied / runtime.NAME).write_bytes(network.SerializeToString())
    assert b"secret.bin" not in (export() or b"secret.bin")
    assert len(said) == 2  # exported anew


@pytest.mark.parametrize("kind", ["torch", "pickle"])
def test_a_checkpoint(kind: str, folders: tuple[Path, Path]) -> None:
    given = SETTINGS | {"out": Path("run"), "use_cache": False, "epochs": 1}
    dial.adapt(*folders, **given)
    Path("run/result.json").unlink()
    Path("run/last.ckpt").write_bytes(objects()[kind])
    with pytest.raises(DialError, match=r"a checkpoint of this run in run.last\.ckpt"):
        dial.adapt(*folders, **given, resume=True)


@pytest.mark.parametrize(("name", "kind"), [("index.npz", "npz"), ("pixels.npy", "npy")])
def test_the_cache(name: str, kind: str, folders: tuple[Path, Path]) -> None:
    def read() -> Any:
        (domain,) = prepare([open_domain(folders[0])], resize=8, cache_dir="cache", quiet=True)
        return domain.pixels.read(domain.pixels.order)

    first = read()
    (file,) = Path("cache").rglob(name)
    file.write_bytes(objects()[kind])
    assert np.array_equal(read(), first)  # read anew


CALL = "__import__('pathlib').Path('executed').touch()"
NESTED = "[" * 100_000 + "]" * 100_000
ABOUT: dict[str, Any] = {
    "code": CALL,
    "a list": [1],
    "a number": 3,
    "nothing": {"version": 3},
    "no classes": {"classes": None},
    "a class that is no name": {"classes": [{"a": 1}, ["b"]]},
    "preprocessing of other fields": {"preprocessing": {"__class__": "Harmful"}},
    "preprocessing of other types": {"preprocessing": {"size": "big"}},
    "a module": {"backbone": "os:system"},
    "a path": {"backbone": "../../executed"},
    "a call": {"backbone": CALL},
    "a private module": {"backbone": "_weights"},
    "a network of a folder": {"backbone": "timm:local-dir:/tmp"},
    "a network of a hub": {"backbone": "timm:hf-hub:somebody/net"},
    "no name": {"backbone": ["timm:test_resnet"]},
    "layers to merge": {"append_after": 3},
}


@pytest.fixture
def copied(finished: Run) -> Path:
    """A copy of a finished run, to spoil."""
    return Path(shutil.copytree(finished.folder, "copy"))


def spoil(path: Path, about: Any, *, nested: bool = False) -> None:
    """Change what a file of tensors says about itself."""
    with safe_open(path, framework="pt") as file:
        own = json.loads(file.metadata()["dial"])
    text = NESTED if nested else json.dumps(own | about if isinstance(about, dict) else about)
    if about == {"version": 3}:
        text = json.dumps(about)
    save_file(load_file(path), path, metadata={"dial": text})


@pytest.mark.parametrize("what", [*ABOUT, "nested"])
def test_what_a_model_says_of_itself(what: str, copied: Path) -> None:
    spoil(copied / "model.safetensors", ABOUT.get(what), nested=what == "nested")
    wanted = r"in .*model\.safetensors|one of the backbones|that dial can build|network of timm"
    with pytest.raises(DialError, match=wanted):
        runs.load(copied)


@pytest.mark.parametrize("what", ["code", "a list", "a number", "nothing", "nested"])
@pytest.mark.parametrize("name", ["memory", "outputs", "evidence"])
def test_what_other_files_say_of_themselves(
    name: str, what: str, copied: Path, finished: Run
) -> None:
    path = copied / f"{name}.safetensors"
    if name == "evidence":
        save_file({"labels": torch.zeros(1)}, path, metadata={"dial": "{}"})
    spoil(path, ABOUT.get(what), nested=what == "nested")
    read: dict[str, Callable[[], object]] = {
        "memory": lambda: memory.load(copied, finished.model),
        "outputs": lambda: outputs.load(copied),
        "evidence": lambda: record.load(copied),
    }
    with pytest.raises(DialError, match=rf"in .*{name}\.safetensors"):
        read[name]()


SETTING = {
    "method": ["os.system", "builtins:exec", CALL, "_head", "..pipeline", ["dial"], {"a": 1}],
    "backbone": ["os:system", "timm:local-dir:/tmp", "timm:hf-hub:a/b", "_weights", ["x"]],
    "preset": ["x"],
    "options": [{"reference": CALL}, {"reference": "os:system"}, {"__class__": "x"}, 3],
    "image_size": [CALL],
    "__class__": ["Harmful"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in SETTING.items() for value in values]
)
def test_settings_that_name_python_objects(name: str, value: Any, copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    config["settings"][name] = value
    (copied / "config.json").write_text(json.dumps(config))
    wanted = r"config\.json|one of the (methods|backbones|references)|network of timm|settings"
    with pytest.raises(DialError, match=wanted):
        dial.adapt(config=copied / "config.json", out="again", quiet=True)


@pytest.mark.parametrize("content", [json.dumps(CALL), "[]", NESTED])
@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl"])
def test_records_that_are_something_else(name: str, content: str, copied: Path) -> None:
    (copied / name).write_text(content)
    of_config, read = name == "config.json", partial(dial.report, copied)
    if of_config:
        read = partial(dial.adapt, config=copied / name, out="again", quiet=True)
    wanted = "the settings of a run" if of_config else "a sound run"
    with pytest.raises(DialError, match=f"{wanted} in .*copy"):
        read()
