"""`check`: what it counts, what stops a run, and how it looks."""

import io
import json
from pathlib import Path

from rich.console import Console

from dial.data.check import CheckReport, check
from dial.data.check_page import print_check
from dial.data.datasets import open_domain
from dial.data.folders import read_folder

from ..conftest import MakeFolder, MakeImage
from .test_decode import broken_files


def page(report: CheckReport, *, terminal: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=terminal, color_system=None)
    print_check(report, console=console)
    return out.getvalue()


def cells(text: str, row: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.strip().startswith(row)]
    return line.split()


def test_sound_pair(make_folder: MakeFolder) -> None:
    source = read_folder(make_folder("a", {"mug": 3, "pen": 2}))
    target = read_folder(make_folder("b", {"pen": 4}, seed=500))
    report = check(source, target, quiet=True)
    assert report.ok
    assert (report.source.images, report.target.images) == (5, 4)
    assert report.source.sizes == {"24x20": 5}
    text = page(report)
    assert cells(text, "mug") == ["mug", "3", "0"]
    assert cells(text, "pen") == ["pen", "2", "4"]
    assert cells(text, "all") == ["all", "5", "4"]
    assert text.endswith("ok: training can begin, with `dial adapt` and these folders\n")


def test_plain_in_a_pipe_and_framed_in_a_terminal(make_folder: MakeFolder) -> None:
    domain = read_folder(make_folder("a", {"mug [x]": 1, "pen": 1}))
    report = check(domain, domain.unlabelled(), quiet=True)
    assert "\u2502" not in page(report)
    assert "\u2502 mug [x]" in page(report, terminal=True)
    assert cells(page(report), "pen") == ["pen", "1", "-"]


def test_duplicates_within_and_across_do_not_stop_a_run(make_folder: MakeFolder) -> None:
    a, b = make_folder("a", {"mug": 2, "pen": 2}), make_folder("b", {"mug": 2}, seed=500)
    (a / "mug" / "copy.png").write_bytes((a / "mug" / "000.png").read_bytes())
    (a / "pen" / "wrong.png").write_bytes((a / "mug" / "001.png").read_bytes())
    (b / "mug" / "both.png").write_bytes((a / "pen" / "000.png").read_bytes())
    report = check(read_folder(a), read_folder(b), quiet=True)
    within = [{str(a / "mug/000.png"), str(a / "mug/copy.png")}]
    mislabelled = [{str(a / "mug/001.png"), str(a / "pen/wrong.png")}]
    assert sorted(map(sorted, report.source.duplicates)) == sorted(
        map(sorted, within + mislabelled)
    )
    assert [set(group) for group in report.source.mislabelled] == mislabelled
    assert report.target.duplicates == []
    assert [set(group) for group in report.shared] == [
        {str(a / "pen/000.png"), str(b / "mug/both.png")}
    ]
    assert report.ok
    assert "the same image in both domains: 2 files in 1 groups" in page(report)


def test_classes_that_do_not_match_stop_a_run(make_folder: MakeFolder) -> None:
    source = read_folder(make_folder("a", {"mug": 1, "pen": 1}))
    target = read_folder(make_folder("b", {"mugs": 1}, seed=500))
    report = check(source, target, quiet=True)
    assert not report.ok
    assert "1 that are not (mugs)" in report.problems[0]
    assert "mugs (not in the source)" in page(report)
    assert check(source, target.unlabelled(), quiet=True).ok


def test_source_without_classes_stops_a_run(make_folder: MakeFolder) -> None:
    domain = read_folder(make_folder("a", {".": 3}))
    report = check(domain, domain, quiet=True)
    assert "source with labels" in report.problems[0]
    assert "images per class" not in page(report)


def test_bad_files_stop_a_run_unless_skipped(
    make_folder: MakeFolder, make_image: MakeImage
) -> None:
    root = make_folder("a", {"mug": 1, "pen": 1})
    names = broken_files(root / "mug", make_image)
    domain = read_folder(root)
    other = read_folder(make_folder("b", {"pen": 1}, seed=500))
    report = check(domain, other, quiet=True)
    assert {Path(path).name for path in report.source.bad} == set(names)
    assert len(report.problems) == 1
    assert f"{len(names)} bad" in report.problems[0]
    assert check(domain, other, quiet=True, skip_bad=True).ok
    assert json.loads(json.dumps(report.to_dict()))["ok"] is False


def test_embedded_digits() -> None:
    digits = open_domain("digits:optdigits")
    report = check(digits, digits, quiet=True)
    assert report.ok
    assert report.source.sizes == {"28x28": 1797}


def test_office31(office31: Path) -> None:
    amazon, webcam = (open_domain(office31 / name) for name in ("amazon", "webcam"))
    report = check(amazon, webcam, quiet=True)
    assert report.ok
    assert (report.source.images, report.target.images) == (2817, 795)
    for domain in (report.source, report.target):
        assert domain.classes is not None
        assert len(domain.classes) == 31
        assert domain.bad == {}
        assert domain.mislabelled == []
    assert len(report.source.duplicates) + len(report.target.duplicates) == 49
