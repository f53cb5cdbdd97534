"""A file format is known where it is read, written and registered; everybody else asks `registry.published_format`."""

from __future__ import annotations

import ast
from pathlib import Path

import gobblin_dagster
from gobblin_dagster.constructs.registry import registry

PACKAGE = Path(gobblin_dagster.__file__).parent
HOMES = ("constructs/formats/", "constructs/writers/", "constructs/registry.py")
WHY_ELSEWHERE = {
    "constructs/converters/avro_bytes.py": "the extra `avro` has the format's name",
    "constructs/decoders/base.py": "a decoder of messages has the format's name",
    "constructs/extras.py": "the extra `avro` has the format's name",
    "constructs/publishers/tables.py": "tables are made of Parquet",
    "constructs/sources/spark/": "Spark's own names",
    "core/utils/optional_packages.py": "the extra `avro` has the format's name",
    "demo/": "the demo's input",
    "spec/gobblin/": "what Gobblin's classes and words stand for",
    "spec/job.py": "the writer of a job that names none",
    "state/files/store.py": "the store's own log",
    "testing/": "made-up files and urns",
}
NAMES = {*registry.file_formats()} - {"text"}
"""`text` is a word of many meanings."""


def _named() -> set[str]:
    """Return the modules that name a format, or the ending of its files, in a string."""
    found = set()
    for module in PACKAGE.rglob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        if any(isinstance(text, str) and text.removeprefix(".") in NAMES for text in texts):
            found.add(module.relative_to(PACKAGE).as_posix())
    return found


def test_formats_are_named_in_their_homes_alone() -> None:
    assert sorted(name for name in _named() if not name.startswith((*HOMES, *WHY_ELSEWHERE))) == []


def test_every_exception_is_needed() -> None:
    named = _named()
    assert [place for place in WHY_ELSEWHERE if not any(name.startswith(place) for name in named)] == []


def test_every_format_that_is_written_says_how_its_files_are_counted() -> None:
    assert [name for name in registry.file_formats() if registry.published_format(f"0.{name}", {}) is None] == []
