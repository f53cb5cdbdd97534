from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.constructs import registry as registry_module
from gobblin_dagster.constructs.registry import ConstructKind, Registry, registry
from gobblin_dagster.core.constructs import Chunk, ConstructContext, Publication, PublishView
from gobblin_dagster.core.errors import InvalidSpecError, UsageError
from gobblin_dagster.spec.job import ConstructSpec

CONTEXT = ConstructContext(job="flights", base_dir="/project")
HERE = __name__


class Masker:
    """A converter as a user would write it."""

    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        column: str
        keep: int = 0

    def __init__(self, options: Options, context: ConstructContext, sign: str = "*") -> None:
        self.options, self.context, self.sign = options, context, sign

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        yield chunk


class NoConvert:
    Options = Masker.Options

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema


class LooseOptions(Masker):
    class Options(BaseModel):  # neither frozen nor strict
        column: str


class NoOptions:
    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        yield chunk


BUILT_IN = [(kind, name) for kind in ConstructKind for name in registry.types(kind)]


@pytest.mark.parametrize(("kind", "name"), BUILT_IN, ids=[f"{kind}.{name}" for kind, name in BUILT_IN])
def test_built_in_construct_loads_and_keeps_its_protocol(kind: ConstructKind, name: str) -> None:
    assert registry.load(kind, name).Options.model_config["frozen"] is True


def test_create_hands_options_context_and_more_to_a_class_of_the_project() -> None:
    spec = ConstructSpec.model_validate({"type": f"{HERE}:Masker", "column": "tailnum"})
    made = registry.create(ConstructKind.CONVERTER, spec, CONTEXT, sign="#")
    assert isinstance(made, Masker)
    assert (made.options.column, made.context.job, made.sign) == ("tailnum", "flights", "#")


def test_create_with_bad_options_names_every_fault() -> None:
    spec = ConstructSpec.model_validate({"type": f"{HERE}:Masker", "keep": "x", "colum": "a"})
    with pytest.raises(InvalidSpecError) as caught:
        registry.create(ConstructKind.CONVERTER, spec, CONTEXT)
    assert [fault.path.rpartition(").")[2] for fault in caught.value.faults] == ["column", "keep", "colum"]
    assert "Job 'flights' has 3 faults" in str(caught.value)
    assert "did you mean 'column'?" in str(caught.value)


@pytest.mark.parametrize(
    ("level", "problem"),
    [
        ({"column": "id", "granularty": "day"}, "unknown key; did you mean 'granularity'?"),
        ({"sql": "id", "name": "x", "zzz": 1}, "unknown key; known: name, sql"),
    ],
    ids=["time", "sql"],
)
def test_misspelt_key_of_one_form_among_several_is_told_with_those_of_that_form(
    level: dict[str, Any], problem: str
) -> None:
    (fault,) = registry.check(ConstructKind.WRITER, "parquet", {"partition_by": [level]})
    assert fault[1] == problem


def test_check_unknown_type_suggests_the_nearest_and_lists_all() -> None:
    (fault,) = registry.check(ConstructKind.WRITER, "parkett", {})
    assert fault[0] == ("type",)
    assert "did you mean 'parquet'?" in fault[1]
    assert "avro, console, csv, jsonl, orc, parquet, text" in fault[1]


def test_check_reports_faults_of_a_nested_construct_with_those_around_it() -> None:
    options = {"path": "{data}/x.csv", "strat": 1, "format": {"type": "csv", "delimter": ";", "quote": "''"}}
    faults = dict(registry.check(ConstructKind.SOURCE, "files", options))
    assert set(faults) == {("path",), ("strat",), ("format", "delimter"), ("format", "quote")}
    assert faults[("format", "delimter")] == "unknown key; did you mean 'delimiter'?"
    assert "unknown placeholder" in faults[("path",)]


def test_check_valid_options_returns_nothing() -> None:
    assert registry.check(ConstructKind.CONVERTER, f"{HERE}:Masker", {"column": "a"}) == []


class Misspelt:
    """A publisher that means `reads_current`."""

    Options = Masker.Options
    read_current = True

    def publish(self, view: PublishView) -> Publication:
        return Publication()


class MisspeltInside:
    """The same of its object."""

    Options = Masker.Options

    def __init__(self, options: Masker.Options, context: ConstructContext) -> None:
        self.need_all_units = True
        self._reads_currents = True  # its own

    def publish(self, view: PublishView) -> Publication:
        return Publication()


def test_attribute_that_is_nearly_a_trait_is_refused_when_the_class_is_loaded() -> None:
    (fault,) = registry.check(ConstructKind.PUBLISHER, f"{HERE}:Misspelt", {"column": "a"})
    assert "Misspelt has 'read_current', which is never used; did you mean 'reads_current'?" in fault[1]


def test_attribute_that_is_nearly_a_trait_is_refused_when_the_object_is_made() -> None:
    spec = ConstructSpec.model_validate({"type": f"{HERE}:MisspeltInside", "column": "a"})
    for _ in range(2):
        with pytest.raises(UsageError, match="'need_all_units', which is never used; did you mean 'needs_all_units'"):
            registry.create(ConstructKind.PUBLISHER, spec, CONTEXT)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("NoConvert", "lacks method convert"),
        ("NoOptions", "lacks a pydantic model `Options`"),
        ("LooseOptions", "ConfigDict"),
        ("CONTEXT", "is no class"),
        ("Absent", "cannot be loaded"),
    ],
)
def test_load_unfit_class_names_what_is_missing(name: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        registry.load(ConstructKind.CONVERTER, f"{HERE}:{name}")


def test_load_missing_module_says_where_it_looked() -> None:
    with pytest.raises(UsageError, match="no_such_module"):
        registry.load(ConstructKind.SOURCE, "no_such_module:Source")


def test_register_second_target_is_refused_and_the_first_stays() -> None:
    mine = Registry()
    mine.register(ConstructKind.CONVERTER, "masker", f"{HERE}:Masker")
    mine.register(ConstructKind.CONVERTER, "masker", f"{HERE}:Masker")
    with pytest.raises(UsageError, match="cannot take the same name"):
        mine.register(ConstructKind.CONVERTER, "masker", f"{HERE}:NoConvert")
    assert mine.load(ConstructKind.CONVERTER, "masker") is Masker


def test_types_is_a_read_only_view() -> None:
    with pytest.raises(TypeError):
        registry.types(ConstructKind.WRITER)["mine"] = "a:B"  # type: ignore[index]  # the refused assignment


def _installed(monkeypatch: pytest.MonkeyPatch, name: str) -> Registry:
    point = EntryPoint(name, f"{HERE}:Masker", registry_module.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry_module, "entry_points", lambda group: [point] if group == point.group else [])
    return Registry()


def test_entry_point_of_a_package_is_found_by_its_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = _installed(monkeypatch, "converter.my_masker")
    assert mine.load(ConstructKind.CONVERTER, "my_masker") is Masker
    assert "my_masker" in mine.types(ConstructKind.CONVERTER)


@pytest.mark.parametrize(
    ("name", "problem"), [("converter.sql", "cannot take the same name"), ("convertor.x", "is not `kind.type`")]
)
def test_entry_point_that_cannot_be_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        _installed(monkeypatch, name).types(ConstructKind.CONVERTER)


def test_built_in_is_loaded_without_looking_at_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: str) -> Any:
        raise AssertionError(group)

    monkeypatch.setattr(registry_module, "entry_points", fail)
    assert Registry().load(ConstructKind.FORMAT, "csv").__name__ == "CsvFormat"


@pytest.mark.parametrize("kind", ConstructKind)
def test_schema_lists_every_type_with_its_options_and_resolves(kind: ConstructKind) -> None:
    schema = registry.schema(kind)
    options = [option for option in schema["oneOf"] if "properties" in option]
    assert [option["properties"]["type"]["const"] for option in options] == list(registry.types(kind))
    for reference in _references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"], reference


def test_members_of_a_union_make_one_fault() -> None:
    options = {"url": "sqlite:///x", "tables": ["t"], "watermark": {"column": "id"}}
    wrong = {"count_rows": "maybe", "lag": [1], "start": {"a": 1}}
    assert registry.check(ConstructKind.SOURCE, "query", options | wrong) == [
        (("start",), "expected a whole number or a date and time or a date or text, got keys and values (a)"),
        (("lag",), "expected a whole number or text, got a list of 1"),
        (("count_rows",), "expected true or false or 'auto', got 'maybe'"),
    ]


def test_options_with_the_same_wrong_value_stay_two_faults() -> None:
    options = {"url": "sqlite:///x", "tables": ["t"], "watermark": {"column": "id"}}
    found = registry.check(ConstructKind.SOURCE, "query", options | {"max_partitions": 0, "fetch_rows": 0})
    assert [where for where, _ in found] == [("max_partitions",), ("fetch_rows",)]
    found = registry.check(ConstructKind.SOURCE, "query", options | {"fetch_rows": 1 << 63})
    assert [where for where, _ in found] == [("fetch_rows",)]


def test_schema_of_row_policies_holds_the_keys_that_all_share() -> None:
    option = registry.schema(ConstructKind.ROW_POLICY)["oneOf"][0]
    assert {"type", "name", "on_violation"} <= set(option["properties"])
    assert {"type", "name"} <= set(option["required"])


def test_schema_of_files_source_holds_its_formats() -> None:
    files = next(one for one in registry.schema(ConstructKind.SOURCE)["oneOf"] if one["title"] == "files")
    formats = [option["title"] for option in files["properties"]["format"]["oneOf"]]
    assert formats == ["avro", "csv", "json", "jsonl", "orc", "parquet", "text", "without options"]
    assert files["properties"]["format"]["oneOf"][-1]["enum"] == formats[:-1]
    assert "strptime" in files["properties"]["path"]["description"]


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _references(item)
