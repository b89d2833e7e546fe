"""The examples of the documents run."""

import re
from pathlib import Path

import pytest

DOCS = sorted((Path(__file__).resolve().parents[1] / "docs").glob("*.md"))


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_examples_run(page: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for example in examples:
        if 'data="data"' not in example:  # these need folders of the reader's own
            exec(compile(example, str(page), "exec"), {})  # noqa: S102
