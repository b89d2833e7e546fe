"""The examples run: loops, a notebook, feature vectors, and two folders to a deployed model."""

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from dial.data.transforms import Preprocessing

from .conftest import slow
from .oracles import network_input

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


ACCURACY = r"^(?:%s): accuracy on the target (\d+\.\d)%%$"
# A few steps each. Chance is 10 %, and the network of the first example begins there.
SCRIPTS = {
    "digits": (8, 20, ()),
    "feature_vectors": (12, 60, ()),
    "lightning_module": (8, 20, ("pytorch_lightning",)),
    "trainer": (12, 20, ("transformers", "accelerate")),
}
QUICK = "feature_vectors"  # the notebook is the digits' script in other words


def require(*packages: str) -> None:
    """Skip where an example's packages are missing; the extra `examples` installs them."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is installed by the extra `examples` alone")


def accuracy_in(output: str, method: str) -> float:
    """The accuracy in percent that an example printed for a method."""
    found = re.search(ACCURACY % method, output, re.MULTILINE)
    assert found, output
    return float(found[1])


@pytest.mark.parametrize(
    "name",
    [name if name == QUICK else slow(name) for name in SCRIPTS],
)
def test_scripts_run_and_learn(name: str) -> None:
    steps, least, packages = SCRIPTS[name]
    require(*packages)
    made = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "--steps", str(steps)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    last = made.stdout.strip().splitlines()[-1]
    assert accuracy_in(last, "DIAL(?:'s head)?") > least
    if name == "feature_vectors":
        plain = accuracy_in(made.stdout, "logistic regression")
        assert accuracy_in(last, "DIAL's head") > plain + 5


def test_every_script_is_run() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"digits_data"}
    assert scripts == set(SCRIPTS)


def test_the_notebook_runs_and_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    require("nbclient", "nbformat", "ipykernel")
    import nbclient
    import nbformat

    monkeypatch.setenv("STEPS", "8")
    notebook = nbformat.read(EXAMPLES / "digits.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "strip its outputs"
    with warnings.catch_warnings():  # Jupyter's own, about its transport and event loop
        warnings.simplefilter("ignore")
        client = nbclient.NotebookClient(
            notebook, timeout=250, resources={"metadata": {"path": str(EXAMPLES)}}
        )
        client.execute()
    (last,) = [out["text"] for out in notebook.cells[-1].outputs]
    assert accuracy_in(last, "DIAL") > 20


@pytest.mark.slow
def test_two_folders_to_a_deployed_model(office31: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    places = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DIAL_DATA": str(office31.parent),
        "OMP_NUM_THREADS": "1",
    }
    options = ["--image-size", "64", "--steps", "2", "--cache-dir", str(tmp_path / "cache"), "-q"]
    process = subprocess.run(
        [
            "/bin/bash",
            str(EXAMPLES / "your_own_data.sh"),
            "office31:dslr",
            "office31:webcam",
            str(out),
            *options,
        ],
        env=os.environ | places,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "on 795 images" in process.stdout
    assert {f"exported.{suffix}" for suffix in ("onnx", "pt2", "safetensors")} | {
        "model.safetensors", "predictions.csv", "report.html", "result.json",
    } <= {path.name for path in out.iterdir()}  # fmt: skip
    check_onnx(out)


def check_onnx(out: Path) -> None:
    """ONNX Runtime, fed by Pillow and NumPy, gives the labels that `predict` wrote."""
    session = onnxruntime.InferenceSession(out / "exported.onnx")
    about = session.get_modelmeta().custom_metadata_map
    classes = json.loads(about["classes"])
    preprocessing = Preprocessing(**json.loads(about["preprocessing"]))
    rows = list(csv.DictReader((out / "predictions.csv").read_text().splitlines()))
    assert len(rows) == 795
    for start in range(0, len(rows), 53):
        part = rows[start : start + 53]
        images = np.stack([network_input(Path(row["path"]), preprocessing) for row in part])
        (logits,) = session.run(["logits"], {"images": images})
        powers = np.exp(logits - logits.max(1, keepdims=True))
        sure = (powers / powers.sum(1, keepdims=True)).max(1)
        np.testing.assert_allclose(sure, [float(row["confidence"]) for row in part], atol=1e-4)
        close = np.sort(logits, axis=1)[:, -1] - np.sort(logits, axis=1)[:, -2] < 1e-4
        same = np.array([classes[i] for i in logits.argmax(1)]) == [row["label"] for row in part]
        assert (same | close).all()
