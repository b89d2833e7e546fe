"""The examples of the documents run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
READERS_OWN = ('data="data"', '"photos"')  # these examples need folders of the reader's own


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_examples_run(page: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for example in examples:
        if not any(folder in example for folder in READERS_OWN):
            exec(compile(example, str(page), "exec"), {})  # noqa: S102
