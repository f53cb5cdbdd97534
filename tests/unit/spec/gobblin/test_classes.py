"""Gobblin's converter and policy classes: what they do with rows, configured by Gobblin's keys only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Converter, RowLevelPolicy
from tests.unit.constructs.samples import CONTEXT, chunk, pylist
from tests.unit.spec.gobblin.files import KAFKA, faults, load

PLACES: list[dict[str, Any]] = [
    {"id": 1, "address": {"cityName": "Ulm", "zip": 89073}},
    {"id": 2, "address": {"cityName": None, "zip": 1}},
    {"id": 3, "address": None},
]
HEADERS = [{"guid": "x", "time": 1}, {"guid": None, "time": 2}, {"guid": "y", "time": None}, None]


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        (
            "converter.classes=AvroFieldRetrieverConverter\nconverter.avro.extractor.field.path=address.cityName\n",
            [{"cityName": "Ulm"}],
        ),
        (
            "converter.classes=AvroFieldRetrieverConverter\nconverter.avro.extractor.field.path=id\n",
            [{"id": 1}, {"id": 2}, {"id": 3}],
        ),
        (
            "converter.classes=FlattenNestedKeyConverter\n"
            "FlattenNestedKeyConverter.fieldsToFlatten=address,address.cityName,address.zip\n",
            [
                {**place, "addressCityname": inner.get("cityName"), "addressZip": inner.get("zip")}
                for place in PLACES
                for inner in (place["address"] or {},)
            ],
        ),
        (
            "extract.table.name=Places\nconverter.classes=AvroProjectionConverter\nPlaces.remove.fields=address\n",
            [{"id": 1}, {"id": 2}, {"id": 3}],
        ),
    ],
    ids=["retriever", "whole column", "flatten", "projection"],
)
def test_class_does_with_rows_what_gobblins_does(tmp_path: Path, lines: str, rows: list[dict[str, Any]]) -> None:
    loaded = load(tmp_path, KAFKA + lines)
    assert loaded.warnings == ()
    (spec,) = loaded.spec.converters
    converter: Converter = registry.create(ConstructKind.CONVERTER, spec, CONTEXT)
    given = chunk(_columns(PLACES))
    converter.convert_schema(given.batch.schema)
    assert pylist(converter.convert(given)) == rows


@pytest.mark.parametrize(
    ("policy", "headers", "passed"),
    [
        ("AvroHeaderGuidPolicy", HEADERS, [True, False, True, False]),
        ("AvroHeaderTimestampPolicy", HEADERS, [True, True, False, False]),
        ("AvroHeaderTimestampPolicy", [{"timestamp": 1}, {"timestamp": None}], [True, False]),
    ],
)
def test_policies_of_headers_look_into_the_header(
    tmp_path: Path, policy: str, headers: list[Any], passed: list[bool]
) -> None:
    lines = f"qualitychecker.row.policies={policy}\nqualitychecker.row.policy.types=ERR_FILE\n"
    (spec,) = load(tmp_path, KAFKA + lines).spec.row_policies
    made: RowLevelPolicy = registry.create(ConstructKind.ROW_POLICY, spec, CONTEXT)
    assert made.check(chunk({"header": headers}).batch).to_pylist() == passed


def test_sample_is_a_hundredth_unless_a_key_says_more(tmp_path: Path) -> None:
    text = KAFKA + "converter.classes=SamplingConverter\n"
    assert load(tmp_path, text).spec.converters[0].options == {"ratio": 0.01}
    assert load(tmp_path, text + "converter.sample.ratio=0.5\n").spec.converters[0].options == {"ratio": 0.5}
    own = {"SamplingConverter": {"type": "sample", "ratio": 0.2}}
    assert load(tmp_path, text + "converter.sample.ratio=0.5\n", own).spec.converters[0].options == {"ratio": 0.2}


def test_filters_of_two_classes_have_keys_of_their_own(tmp_path: Path) -> None:
    text = KAFKA + (
        "converter.classes=StringFilterConverter,AvroFilterConverter,StringToBytesConverter\n"
        "converter.string.filter.pattern=a.*\nconverter.filter.field=kind\nconverter.filter.value=x\n"
    )
    assert [one.options for one in load(tmp_path, text).spec.converters] == [
        {"column": "value", "matches": "a.*"}, {"column": "kind", "equals": "x"}, {"columns": ["value"]}
    ]  # fmt: skip


def test_key_of_a_branch_speaks_of_its_converter(tmp_path: Path) -> None:
    text = KAFKA + (
        "fork.branches=2\nconverter.classes.1=StringFilterConverter\nconverter.string.filter.pattern=a.*\n"
        "converter.string.filter.pattern.1=b.*\n"
    )
    (converter,) = load(tmp_path, text).spec.fork.branches[1].converters
    assert converter.options["matches"] == "b.*"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "converter.classes=CsvToJsonConverter\nconverter.csv.to.json.enclosedchar='\n",
            'expected ", which alone encloses values there, got',
        ),
        ("converter.classes=StringFilterConverter\nconverter.string.filter.pattern=[a-z&&[^b]]\n", "[a-z&&[^b]]"),
        ("converter.csv_to_json.custom_order=0,2,1\n", "cannot be carried, and without it other data would be read"),
        ("converter.encrypt.algorithm=aes_rotating\n", "key_env: NAME"),
        ("extract.table.name=t\nconverter.classes=AvroProjectionConverter\nt.remove.fields=a.b\n", "whole columns"),
        ("converter.classes=AvroProjectionConverter\nother.remove.fields=a\n", "is no key that is known"),
        (
            "converter.classes=FlattenNestedKeyConverter\nFlattenNestedKeyConverter.fieldsToFlatten=address\n",
            "expected nested fields",
        ),
        (
            "converter.classes=AvroFilterConverter\nconverter.filter.field=address.city\nconverter.filter.value=Oslo\n",
            "expected a whole column, got the field 'address.city' of one",
        ),
        ("converter.classes=FlattenNestedKeyConverter\n", "expected select, where or both"),
        ("converter.classes=BytesToAvroConverter\n", "expected avro_schema or schema_file"),
    ],
)
def test_what_a_class_would_do_otherwise_is_a_fault(tmp_path: Path, lines: str, problem: str) -> None:
    assert any(problem in fault for fault in faults(tmp_path, KAFKA + lines))


TEXT = """\
job.name=example
source.class=org.apache.gobblin.example.simplejson.SimpleJsonSource
extract.namespace=shop
data.publisher.final.dir=/lake
source.filebased.files.to.pull={}
"""


@pytest.mark.parametrize(
    ("given", "path"),
    [("/in/a.json", "/in/a.json"), ("/in/a.json, /in/b.json,,/in/a.json", "/in/{a.json,b.json}"),
     ("hdfs://nn/in/1,hdfs://nn/in/2", "hdfs://nn/in/{1,2}"), ("a,b", "{a,b}")],
)  # fmt: skip
def test_files_of_a_list_are_read_and_no_others(tmp_path: Path, given: str, path: str) -> None:
    assert load(tmp_path, TEXT.format(given)).spec.source.options["path"] == path


@pytest.mark.parametrize(
    ("quote", "rows"),
    [
        ("", [('"a', 'b"'), ('""', None), (None, "nulls"), ("x", "it's")]),
        ('converter.csv.to.json.enclosedchar="\n', [("a,b", None), (None, None), (None, "nulls"), ("x", "it's")]),
    ],
    ids=["no quotes", "quotes"],
)
def test_values_of_csv_are_those_of_gobblins_class(tmp_path: Path, quote: str, rows: list[tuple[Any, Any]]) -> None:
    text = (
        TEXT.format("/in/a.csv")
        + quote
        + (
            "converter.classes=CsvToJsonConverter\nconverter.csv.to.json.delimiter=,\n"
            'source.schema=[{"columnName":"a","dataType":{"type":"string"}},{"columnName":"b","dataType":{"type":"string"}}]\n'
        )
    )
    (spec,) = load(tmp_path, text).spec.converters
    converter: Converter = registry.create(ConstructKind.CONVERTER, spec, CONTEXT)
    given = chunk({"line": ['"a,b"', '""', "NuLL,nulls", "x,it's,z"]})
    converter.convert_schema(given.batch.schema)
    assert [(row["a"], row["b"]) for row in pylist(converter.convert(given))] == rows


@pytest.mark.parametrize(
    ("source", "path", "table"),
    [
        ("DatePartitionedAvroFileSource", "/in/{date:%Y/%m/%d}/*.avro", "in"),
        ("DatePartitionedJsonFileSource", "/in/{date:%Y/%m/%d}/*.json", "in"),
        ("TextFileBasedSource", "/in/**/*", "orders"),
        ("org.apache.gobblin.source.extractor.hadoop.AvroFileSource", "/in/**/*", "orders"),
        ("HadoopTextInputSource", "/in/*", "orders"),
    ],
)
def test_files_are_those_that_the_class_reads(tmp_path: Path, source: str, path: str, table: str) -> None:
    text = (
        f"job.name=example\nsource.class={source}\nextract.namespace=shop\ndata.publisher.final.dir=/lake\n"
        "source.filebased.data.directory=/in\nsource.entity=orders\n"
    )
    text += "date.partitioned.source.partition.pattern=yyyy/MM/dd\n" if source.startswith("Date") else ""
    loaded = load(tmp_path, text)
    assert (loaded.spec.source.options["path"], loaded.spec.extract.table) == (path, table)
    told = [one.problem[:27] for one in loaded.warnings]
    assert told == (["reads each file once here; "] if source.startswith("Hadoop") else [])
    assert load(tmp_path, f"{text}extract.is.full=true\n").spec.extract.is_full is (True if told else None)


def test_folder_of_dated_files_names_the_table_whatever_the_keys_say(tmp_path: Path) -> None:
    text = (
        "job.name=example\nsource.class=gobblin.source.DatePartitionedAvroFileSource\nextract.namespace=shop\n"
        "data.publisher.final.dir=/lake\nsource.filebased.data.directory=hdfs://nn/in/page-views/\n"
    )
    loaded = load(tmp_path, text)
    assert (loaded.spec.extract.table, loaded.warnings) == ("page_views", ())
    removed = "converter.classes=AvroProjectionConverter\npage-views.remove.fields=memberId\n"
    loaded = load(tmp_path, text + "extract.table.name=orders\n" + removed)
    assert (loaded.spec.extract.table, loaded.spec.converters[0].options["columns"]) == ("page_views", ["memberId"])
    (told,) = loaded.warnings
    assert (told.path, told.problem) == (
        "extract.table.name",
        "is not used: as in Gobblin, the table is 'page-views' with this source",
    )
    (found,) = faults(tmp_path, text.replace("page-views/", "${env:VIEWS}"), VIEWS="page-views")
    assert "source.filebased.data.directory: names the table too, and names take no variables" in found


def test_example_source_names_its_extract_itself(tmp_path: Path) -> None:
    text = TEXT.format("/in/a").replace("extract.namespace=shop\n", "")
    extract = load(tmp_path, text + "extract.table.name=orders\n").spec.extract
    assert (extract.namespace, extract.table) == ("ExampleNamespace", "ExampleTable")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("/in/a,/out/b", "got some of /in, /out"),
        ("/in/a*,/in/b", "names of files as they are"),
        ("${env:DIR}/a,${env:DIR}/b", "names of files as they are"),
        ("/in/,/in/b", "got a folder"),
    ],
)
def test_list_of_files_that_is_no_pattern_is_a_fault(tmp_path: Path, given: str, problem: str) -> None:
    assert any(problem in fault for fault in faults(tmp_path, TEXT.format(given), DIR="/in"))
