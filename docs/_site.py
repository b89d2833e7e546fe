"""What MkDocs needs to know of this project: pages outside docs/, their links, and doctests.

Links in the sources are those of the repository, so that they lead somewhere without a site too.
"""

import os
import re
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ("*.md", "results/**/*.md")
LINK = re.compile(r"(?<=\]\()[^)#\s]+")
DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that lie outside docs/."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(_file(path, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links between files of the repository; what they lead to comes along."""
    folder = Path(str(page.file.abs_src_path)).resolve().parent

    def in_site(link: re.Match[str]) -> str:
        path = (folder / link[0]).resolve()
        if not path.is_file():
            return link[0]
        file = _file(path, config)
        if file.src_uri not in files.src_uris:
            files.append(file)
        return os.path.relpath(file.src_uri, os.path.dirname(page.file.src_uri) or ".")

    title = "" if markdown.startswith("# ") else f"# {folder.name}\n\n"  # tables have none
    return title + LINK.sub(in_site, markdown)


def _file(path: Path, config: MkDocsConfig) -> File:
    """Returns the site's file of one of the repository: docs/ and the README are its top."""
    name = path.relative_to(ROOT).as_posix()
    uri = "index.md" if name == "README.md" else name.removeprefix("docs/")
    return File.generated(config, uri, abs_src_path=str(path))


class Doctests(griffe.Extension):  # type: ignore[misc]
    """Shows the doctests of docstrings as code, not as nested quotations."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Puts fences around the doctests of one object's docstring."""
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(
                lambda example: f"{example[1]}```pycon\n{example[0]}\n{example[1]}```",
                obj.docstring.value,
            )
