"""The examples run: a training loop with DA-layers, and two folders to a deployed model."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime

from dial.data.transforms import Preprocessing

from .oracles import network_input

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_a_training_loop_with_da_layers() -> None:
    output = subprocess.run(
        [sys.executable, str(EXAMPLES / "digits.py"), "--steps", "4"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"^source only +\d+\.\d%", output, re.MULTILINE)
    assert re.search(r"^DIAL +\d+\.\d%", output, re.MULTILINE)


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
