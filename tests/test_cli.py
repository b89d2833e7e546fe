"""The command as a user meets it: output, exit codes, no traceback, quick help."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import dial
from dial.options import COMMON, EXECUTION, METHOD, TRAINING

from .conftest import Call, MakeFolder, refused


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", "from dial.cli import main; main()"]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_version() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"dial {dial.__version__}\n")


def test_help_imports_nothing_slow() -> None:
    code = (
        "import sys\nfrom dial.cli import app\napp(['--help'], standalone_mode=False)\n"
        "print([name for name in ('torch', 'torchvision', 'numpy', 'PIL') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "check" in result.stdout
    assert result.stdout.endswith("[]\n")


def test_help_answers_long_before_torch_is_imported() -> None:
    def seconds(code: str) -> float:
        """What it computes, which is the same on a busy machine."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    code = "import sys; sys.argv = ['dial', '--help']; from dial.cli import main; main()"
    assert seconds(code) < 0.8 * seconds("import torch")


def test_check_needs_no_torch(make_folder: MakeFolder) -> None:
    root = make_folder("a", {"mug": 1, "pen": 1})
    code = (
        "import sys\nfrom dial.cli import app\n"
        f"app(['check', {str(root)!r}, {str(root)!r}], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.endswith("False\n")


def test_check_of_a_sound_pair(make_folder: MakeFolder) -> None:
    source = make_folder("a", {"mug": 2, "pen": 1})
    result = run("check", source, make_folder("b", {".": 3}, seed=500), "--json")
    assert result.returncode == 0
    assert result.stderr == ""
    report = json.loads(result.stdout)
    assert report["ok"] is True
    assert report["source"]["classes"] == {"mug": 2, "pen": 1}
    assert report["target"]["classes"] is None


def test_check_with_a_problem_shows_the_table_and_the_error(make_folder: MakeFolder) -> None:
    source = make_folder("a", {"mug": 2, "pen": 1})
    target = make_folder("b", {"mugs": 1}, seed=500)
    result = run("check", source, target)
    assert result.returncode == 2
    assert "images per class" in result.stdout
    assert result.stderr.startswith("dial: error: wanted target classes that are among")
    assert run("check", source, target, "--unlabelled").returncode == 0


def test_check_with_bad_files(make_folder: MakeFolder) -> None:
    source = make_folder("a", {"mug": 2, "pen": 1})
    (source / "pen" / "empty.jpg").touch()
    result = run("check", source, source)
    assert result.returncode == 2
    assert "empty.jpg: empty (zero bytes)" in result.stderr
    assert run("check", source, source, "--skip-bad").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "nowhere", "nowhere"], "got 'nowhere', which does not exist"),
        (["check", "office31:amazon", "office31:webcam"], "fix: pass --data DIR"),
        (["check", "somewhere"], "wanted a source and a target, got somewhere alone"),
        (["check", "a", "b", "--dta", "c"], "No such option: --dta"),
        (["report", "nowhere"], "wanted a finished run in nowhere, got no run there"),
        (["chek"], "No such command 'chek'"),
        (["list", "nothing"], "No such command 'nothing'"),
    ],
)
def test_wrong_use_gives_one_message_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("dial: error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_list_datasets() -> None:
    result = run("list", "datasets")
    assert result.returncode == 0
    assert "amazon, caltech, dslr, webcam" in result.stdout
    names = [row["data set"] for row in json.loads(run("list", "datasets", "--json").stdout)]
    assert names == ["digits", "office31", "office_caltech"]


def test_folder_given_by_a_relative_path(make_folder: MakeFolder, tmp_path: Path) -> None:
    make_folder("a", {"mug": 1, "pen": 1})
    command = [sys.executable, "-c", "from dial.cli import main; main()", "check", "a", "a"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0


def test_help_shows_every_setting_with_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # in narrower terminals the longest names are cut
    text = " ".join(run("adapt", "--help-all").stdout.replace("│", " ").split())
    for words in (
        "--lr <float> Learning rate of pretrained layers. [default: 0.003]",
        "--batch-size <str>",
        "[default: 24+24]",
        "--image-size <int>",
        "[default: 160]",
        "--seed <int> Seed of everything random. [default: 0]",
        "[default: 1.0 (cdan), 1.0 (dan), 0.25 (ddc), 1.0 (mcc), 0.1 (revgrad), 0.3 (shot)]",
        "--precision <str> Precision: 32-true, bf16-mixed or 16-mixed. [default: 32-true]",
    ):
        assert words in text, words
    for field in (*TRAINING.values(), *METHOD.values(), *EXECUTION.values()):
        if field.name != "use_cache":
            assert field.flag in text, field.name


def test_help_fits_on_two_screens_and_names_what_is_common(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = run("adapt", "--help").stdout
    assert len(text.splitlines()) <= 100
    for name in COMMON:
        assert (TRAINING | METHOD | EXECUTION)[name].flag in text, name
    assert "--help-all" in text
    assert "--momentum" not in text


def test_list_presets_shows_what_they_set() -> None:
    result = run("list", "presets", "--json")
    rows = {row["preset"]: row["sets"] for row in json.loads(result.stdout)}
    assert "backbone alexnet, epochs 60, batch_size 256" in rows["paper-alexnet"]
    assert "steps 800" in rows["digits_cnn"]


def test_settings_by_their_names(call: Call, folders: tuple[Path, Path], tmp_path: Path) -> None:
    quick = ["--backbone", "timm:test_resnet", "--weights", "none", "--image-size", 32]
    quick += ["--steps", 1, "--batch-size", "8+4", "--no-report", "--quiet", "--no-cache"]
    out = tmp_path / "run"
    more = ["--set", "weight=0.5", "--set", "training.momentum=0.8", "--milestones", "0.5,0.75"]
    told = call("adapt", *folders, *quick, "--method", "ddc", *more, "--out", out)
    assert told.code == 0, told.err
    settings = json.loads((out / "config.json").read_text())["settings"]
    assert settings["options"]["weight"] == 0.5
    assert settings["momentum"] == 0.8
    assert settings["milestones"] == [0.5, 0.75]
    again = tmp_path / "again"
    told = call(
        "adapt", "--config", out / "config.json", "--out", again, "--no-report", "-q", "--no-cache"
    )
    assert told.code == 0, told.err
    one, two = ((folder / "model.safetensors").read_bytes() for folder in (out, again))
    assert one == two


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "entrpy=1"], "got 'entrpy'; fix: did you mean entropy"),
        (["--set", "lr"], "wanted --set NAME=VALUE, got --set lr"),
        (["--set", "steps=many"], "wanted a value of steps of the type int | None, got 'many'"),
        (["--config", "nowhere.json"], "wanted the settings of a run in nowhere.json"),
    ],
)
def test_settings_that_are_none(call: Call, words: list[str], message: str, tmp_path: Path) -> None:
    told = call("adapt", "digits:mnist", "digits:optdigits", "--out", tmp_path / "run", *words)
    refused(told, message)
    assert told.err.count("\n") == 1


def test_the_command_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "dial", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"dial {dial.__version__}\n"


@pytest.mark.parametrize("group", [[], ["list"]])
def test_what_commands_are_for_is_not_cut_off(call: Call, group: list[str]) -> None:
    told = call(*group, "--help")
    listed = told.out.partition("Commands")[2]
    assert "..." not in listed
    assert listed.count(".") >= 4
