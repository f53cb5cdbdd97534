"""Names of stored formats: pinned, because stores written long ago carry them."""

from __future__ import annotations

import ast
import signal
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest

import gobblin_dagster
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.serialization import from_document, from_json, to_document, to_json
from gobblin_dagster.engine.commit import codec, manifest
from gobblin_dagster.engine.maintenance import state_export

STORED = {
    "DatasetHead/2",
    "DatasetState/1",
    "FlowConfig/1",
    "CommitReport/1",
    "RunRecord/1",
    "SequenceEntry/1",
    "SnapshotPart/1",
    "Startpoint/2",
    "StartpointEvent/1",
    "StoredSequence/1",
}
"""A class may be renamed, its format may not. If a version is raised here, the one before must still be readable."""
OF_ONE_RUN = {"RunContext/1", "TaskInput/1", "TaskState/1"}
"""Documents that driver and tasks of one run exchange; no other program reads them."""


@dataclass(frozen=True)
class Cup:
    format_name: ClassVar[str] = "Mug/2"

    of: str


def _declared() -> list[str]:
    """Return the `format_name`s that classes of the package declare."""
    texts = (path.read_text() for path in Path(gobblin_dagster.__file__).parent.rglob("*.py"))
    modules = (ast.parse(text) for text in texts if "format_name" in text)
    classes = (node for module in modules for node in ast.walk(module) if isinstance(node, ast.ClassDef))
    return [
        ast.literal_eval(line.value)
        for each in classes
        for line in each.body
        if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == "format_name" and line.value is not None
    ]


def test_names_of_all_formats_stay() -> None:
    assert sorted(_declared()) == sorted(STORED | OF_ONE_RUN)
    assert (codec.FORMAT, state_export.FORMAT, manifest.FORMAT) == (
        "CommitSequence/3",
        "GobblinState/3",
        "Manifest/3",
    )


def test_document_carries_the_name_of_its_format_and_not_that_of_its_class() -> None:
    assert to_document(Cup("tea")) == {"format": "Mug/2", "of": "tea"}
    assert from_json(Cup, to_json(Cup("tea"))) == Cup("tea")


@pytest.mark.parametrize("document", [{"format": "Cup/2"}, {"format": "Mug/1"}, {"format": "Mug/3"}, {}, None])
def test_document_of_another_format_is_refused(document: object) -> None:
    with pytest.raises(CorruptRecordError, match=r"A stored Mug .*expected format 'Mug/2'"):
        from_document(Cup, document)


def test_document_of_an_older_format_is_read_where_the_reader_says_so() -> None:
    older = {"format": "Beaker/1", "of": "tea", "with_handle": False}
    assert from_document(Cup, older, older_formats=("Beaker/1",)) == Cup("tea")


@pytest.mark.parametrize(("text", "problem"), [("{", "not JSON"), ('{"format": "Mug/2"}', "of: ")])
def test_document_that_is_torn_or_lacks_a_field_is_refused(text: str, problem: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"A stored Mug .*{problem}"):
        from_json(Cup, text)


_STRUCK: list[int] = []
"""Signals that wait; the handler raises when Python looks at the next value."""


class Kind(Enum):
    ONE = "one"

    def __getattribute__(self, name: str) -> Any:
        if name == "value" and _STRUCK:
            raise KeyboardInterrupt
        return super().__getattribute__(name)


@dataclass(frozen=True)
class Struck:
    format_name: ClassVar[str] = "Struck/1"

    kind: Kind


def test_signal_while_pydantic_prepares_a_class_is_no_error_of_the_class() -> None:
    """It makes a SchemaError of what the handler raises; a run that was stopped would end as a bug of the program."""
    _STRUCK.append(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        to_document(Struck(Kind.ONE))
    _STRUCK.clear()
    assert to_document(Struck(Kind.ONE)) == {"format": "Struck/1", "kind": "one"}
