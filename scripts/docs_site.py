"""A hook of MkDocs: the site's pages by their paths in this repository, those outside of `docs/` too.

A link of one page to another is then written as GitHub wants it, and leads to the same page in the site. Files that
pages link to and that are no pages (job files, modules of examples) are copied, as text that a browser shows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
BESIDE_DOCS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/*.md",
    "benchmarks/*.py",
    "examples/README.md",
    "examples/*/*.*",
    "examples/*/jobs/*.*",
    "examples/service/*/*.*",
    "examples/service/*/*/*.*",
    "deploy/*.md",
    "deploy/*.yaml",
    "deploy/Dockerfile",
    "gobblin_dagster/demo/template/flights.yaml",
]
SHOWN_BY_BROWSERS = {".md", ".png", ".css", ".js"}
"""Files of other kinds get the ending `.txt` in the site, since browsers would store them instead."""

ITEM = re.compile(r"(?:[-*]|\d+\.) ")
"""The beginning of an item of a list."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that match in the place of each pattern in a section of the navigation."""
    for section in config.nav or []:
        for title, pages in section.items():
            if isinstance(pages, list):
                section[title] = [found for page in pages for found in _matching(page)]
    return config


def _matching(page: Any) -> list[Any]:
    if isinstance(page, str) and "*" in page:
        return [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob(page))]
    return [page]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put an empty line before each list that follows a paragraph: GitHub needs none, the site's Markdown does."""
    lines: list[str] = []
    in_code = False
    for line in markdown.splitlines():
        before = lines[-1] if lines else ""
        if (
            not in_code
            and ITEM.match(line)
            and before.strip()
            and not before.startswith(" ")
            and not ITEM.match(before)
        ):
            lines.append("")
        in_code ^= line.lstrip().startswith("```")
        lines.append(line)
    return "\n".join(lines)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return all files of the site; each has the path that it has in the repository."""
    in_docs = [file for file in files if file.src_dir == config.docs_dir]
    others = [file for file in files if file.src_dir != config.docs_dir]  # of the theme
    paths = [Path("docs") / file.src_uri for file in in_docs]
    paths += sorted({path.relative_to(ROOT) for pattern in BESIDE_DOCS for path in ROOT.glob(pattern)})
    return Files([*others, *(_file(path, config) for path in paths)])


def _file(path: Path, config: MkDocsConfig) -> File:
    return File(path.as_posix(), str(ROOT), config.site_dir, config.use_directory_urls, dest_uri=_destination(path))


def _destination(path: Path) -> str:
    """Return where a file lies in the site: what is in `docs/` at the top, the repository's README beside it."""
    if path == Path("README.md"):
        return "overview.html"
    if path.parts[0] == "docs":
        path = path.relative_to("docs")
    if path.suffix == ".md":
        return path.with_name("index.html" if path.name == "README.md" else f"{path.stem}.html").as_posix()
    return path.as_posix() if path.suffix in SHOWN_BY_BROWSERS else f"{path.as_posix()}.txt"
