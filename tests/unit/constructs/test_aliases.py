"""Gobblin's class names stand for types that exist, in old and new spelling, and in whole jobs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gobblin_dagster.constructs import aliases
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.spec.job import ConverterSpec
from tests.unit.constructs.samples import CONTEXT, chunk, converted

TABLES: Mapping[ConstructKind, Mapping[str, str]] = {
    ConstructKind.SOURCE: aliases.SOURCES,
    ConstructKind.CONVERTER: aliases.CONVERTERS,
    ConstructKind.ROW_POLICY: aliases.ROW_POLICIES,
    ConstructKind.TASK_POLICY: aliases.TASK_POLICIES,
    ConstructKind.FORK: aliases.FORKS,
    ConstructKind.WRITER: aliases.WRITERS,
    ConstructKind.PUBLISHER: aliases.PUBLISHERS,
}
ALL = [(kind, name, meant) for kind, table in TABLES.items() for name, meant in table.items()]


@pytest.mark.parametrize(("kind", "name", "meant"), ALL, ids=str)
def test_gobblins_class_name_is_a_type(kind: ConstructKind, name: str, meant: str) -> None:
    assert name.startswith("org.apache.gobblin.")
    assert registry.load(kind, name) is registry.load(kind, meant)
    assert registry.load(kind, name.removeprefix("org.apache.")) is registry.load(kind, meant)


def test_type_by_gobblins_name_is_made_with_our_options() -> None:
    name = "org.apache.gobblin.converter.string.StringSplitterConverter"
    spec = ConverterSpec.model_validate({"type": name, "column": "a", "delimiter": ","})
    result = converted(registry.create(ConstructKind.CONVERTER, spec, CONTEXT), chunk({"a": ["x,y"]}))
    assert result.batch.column("a").to_pylist() == ["x", "y"]


def test_class_of_gobblin_without_successor_is_unknown_like_any_other_type() -> None:
    with pytest.raises(UsageError, match=r"There is no converter type 'org\.apache\.gobblin\.converter\.Nothing'"):
        registry.load(ConstructKind.CONVERTER, "org.apache.gobblin.converter.Nothing")
