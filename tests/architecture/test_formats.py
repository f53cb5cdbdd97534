"""A part is known by name where it is made and registered, and nowhere else.

Of a file format everybody else asks `registry.published_format`, of a storage `storage.schemes`, of a package the
construct.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import pytest

import gobblin_dagster
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.traits import PackageTraits, traits_of
from gobblin_dagster.core.utils.optional_packages import EXTRAS
from gobblin_dagster.storage import schemes

PACKAGE = Path(gobblin_dagster.__file__).parent
HOMES = ("constructs/formats/", "constructs/writers/", "constructs/registry.py")
WHY_ELSEWHERE = {
    "constructs/decoders/base.py": "a decoder of messages has the format's name",
    "constructs/publishers/tables.py": "tables are made of Parquet",
    "constructs/sources/spark/": "Spark's own names",
    "core/utils/optional_packages.py": "the extra `avro` has the format's name",
    "demo/": "the demo's input",
    "engine/allowed.py": "namespaces of Spark that are formats",
    "orchestration/scaffold.py": "the example job that it writes",
    "spec/gobblin/": "what Gobblin's classes and words stand for",
    "spec/job.py": "the writer of a job that names none",
    "state/files/store.py": "sequences are JSON lines",
    "testing/": "made-up files and urns",
}
NAMES = {*registry.file_formats()} - {"text"}
"""`text` is a word of many meanings."""


SCHEMES = {*schemes._TARGETS} - {"file", "memory"}
"""`file` and `memory` are words of many meanings."""
WHY_SCHEMES_ELSEWHERE = {
    "core/allow.py": "what may be allowed is listed apart from what can be done",
    "core/same_place.py": "two schemes may be one storage",
    "core/utils/optional_packages.py": "extras have the names of schemes",
    "core/utils/ports.py": "each scheme of a server has a port",
    "testing/protocol/": "crash tests name the services that they need",
}


@cache
def _texts() -> Mapping[str, Collection[str]]:
    """Return the strings in each module; all tests ask the same, and parsing takes seconds."""
    found = {}
    for module in PACKAGE.rglob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        texts = {text.removeprefix(".").removesuffix("://") for text in constants if isinstance(text, str)}
        found[module.relative_to(PACKAGE).as_posix()] = texts
    return found


def _naming(names: Collection[str]) -> set[str]:
    """Return the modules with a string that is one of some names, as a file's ending or the beginning of a URL too."""
    return {module for module, texts in _texts().items() if not {*names}.isdisjoint(texts)}


def _strangers(names: Collection[str], homes: Collection[str]) -> list[str]:
    return sorted(module for module in _naming(names) if not module.startswith(tuple(homes)))


def test_formats_are_named_in_their_homes_alone() -> None:
    assert _strangers(NAMES, [*HOMES, *WHY_ELSEWHERE]) == []


def test_schemes_are_named_in_their_homes_alone() -> None:
    assert _strangers(SCHEMES, ["storage/", *WHY_SCHEMES_ELSEWHERE]) == []


@pytest.mark.parametrize(
    ("names", "exceptions"), [(NAMES, WHY_ELSEWHERE), (SCHEMES, WHY_SCHEMES_ELSEWHERE)], ids=["formats", "schemes"]
)
def test_every_exception_is_needed(names: Collection[str], exceptions: Mapping[str, str]) -> None:
    named = _naming(names)
    assert [place for place in exceptions if not any(name.startswith(place) for name in named)] == []


def test_every_format_that_is_written_says_how_its_files_are_counted() -> None:
    assert [name for name in registry.file_formats() if registry.published_format(f"0.{name}", {}) is None] == []


def test_packages_that_constructs_and_schemes_ask_for_are_those_of_an_extra() -> None:
    loaded = [registry.load(kind, name) for kind in ConstructKind for name in registry.types(kind)]
    asked = [traits_of(cls, PackageTraits).packages for cls in loaded]
    asked += [schemes.scheme_named(name).packages for name in schemes._TARGETS]
    assert {module for packages in asked for module in packages} <= EXTRAS.keys()
