"""The error tree, its drawing and docs/errors.md name the same errors in the same order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import gobblin_dagster.core.errors as errors_module
from gobblin_dagster.core.errors import GobblinDagsterError

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors.md"


def tree(cls: type[GobblinDagsterError]) -> Iterator[type[GobblinDagsterError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from tree(child)


def shipped() -> list[type[GobblinDagsterError]]:
    return [cls for cls in tree(GobblinDagsterError) if cls.__module__.startswith("gobblin_dagster.")]


def test_codes_of_all_errors_are_unique() -> None:
    codes = [cls.code for cls in shipped()]
    assert sorted(codes) == sorted(set(codes))


def test_errors_stand_in_one_module() -> None:
    assert {cls.__module__ for cls in shipped()} == {errors_module.__name__}


def test_document_has_one_section_per_error_in_order_of_the_tree() -> None:
    sections = re.findall(r"^## `([a-z-]+)`$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == [cls.code for cls in shipped()]


def test_every_section_says_what_to_do() -> None:
    _, *sections = re.split(r"^## ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    silent = [text.splitlines()[0] for text in sections if "**What to do.**" not in text]
    assert silent == ["`error`"]  # the root, which is never raised


def test_drawing_names_every_error_in_order() -> None:
    drawn = re.findall(r"\b[A-Z]\w+Error\b", (errors_module.__doc__ or "").partition("An error takes")[0])
    assert drawn == [cls.__name__ for cls in shipped()]
