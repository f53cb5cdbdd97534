"""Types of CSV columns over the runs of a job: inferred once, kept by the state, never altered without a word."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.formats.base import InfersTypes
from gobblin_dagster.constructs.sources.files.inferred_types import infer_types
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import InvalidSpecError
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.snapshots.reader import read_published
from gobblin_dagster.spec.job import JobSpec
from tests.unit.constructs.formats.reading import file_format
from tests.unit.constructs.sources.files.test_source import plan, put, source
from tests.unit.engine.jobs import project, run

PATH = "in/{dataset}/*.csv"


class Lake:
    """A job that publishes the files of `in/<dataset>/`."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.options = {"type": "csv", **options}

    def job(self, **parts: Any) -> JobSpec:
        body = {
            "job": "j",
            "source": {"type": "files", "path": PATH, "format": self.options},
            "extract": {"namespace": "n", "table": "t"},
            "output": {"path": "lake"},
        }
        return JobSpec.model_validate(body | parts)

    def run(self, **parts: Any) -> DatasetResult:
        (dataset,) = run(self.root, self.job(**parts)).datasets
        return dataset

    def published(self) -> pa.Table:
        files = sorted((self.root / "lake").rglob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
        return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])


def offer(root: Path, states: dict[str, DatasetState] | None = None, **options: Any) -> DatasetOffer:
    return plan(source(root, PATH, format={"type": "csv", **options}), states)["a"]


def kinds(table: pa.Table) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema}


def test_types_are_inferred_told_in_the_plan_and_published(tmp_path: Path) -> None:
    put(
        tmp_path,
        "in/a/1.csv",
        text="id,zip,price,day,ok,empty\n1,007,1.5,2024-01-31,true,\n2,123,2,2024-02-01,FALSE,\n",
    )
    (note,) = offer(tmp_path).type_notes
    assert note == (
        "types inferred from 2 rows of 1 file: int64: id; text: zip, empty; float64: price; date: day; bool: ok."
    )
    lake = Lake(tmp_path)
    assert lake.run().rows_read == 2
    assert lake.published().to_pylist()[0] == {
        "id": 1,
        "zip": "007",
        "price": 1.5,
        "day": date(2024, 1, 31),
        "ok": True,
        "empty": None,
    }


def test_types_of_the_first_commit_stay(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    put(tmp_path, "in/a/1.csv", text="id\n1\n")
    lake.run()
    put(tmp_path, "in/a/2.csv", text="id\nx\n")
    (failure,) = lake.run().failures
    assert "file in/a/2.csv, row 1: column 'id': 'x' does not fit int64" in failure.message
    put(tmp_path, "in/a/2.csv", text="id\n2\n")
    lake.run()
    assert lake.published().to_pylist() == [{"id": 1}, {"id": 2}]


def test_column_that_comes_later_gets_a_type_of_its_own(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    put(tmp_path, "in/a/1.csv", text="id\n1\n")
    lake.run()
    put(tmp_path, "in/a/2.csv", text="id,n\n2,2.5\n")
    lake.run(schema_contract="evolve")
    files = sorted((tmp_path / "lake").rglob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    assert kinds(pq.read_table(files[-1], partitioning=None)) == {"id": "int64", "n": "double"}


def test_dataset_that_was_published_as_text_stays_text(tmp_path: Path) -> None:
    put(tmp_path, "in/a/1.csv", text="id,n\n1,1\n")
    lake = Lake(tmp_path, infer=False)
    lake.run()
    assert kinds(lake.published()) == {"id": "string", "n": "string"}
    lake = Lake(tmp_path)
    put(tmp_path, "in/a/2.csv", text="id,n\n2,2\n")
    assert lake.run().rows_read == 1
    assert kinds(lake.published()) == {"id": "string", "n": "string"}


def test_types_stay_if_inference_is_switched_off_later(tmp_path: Path) -> None:
    put(tmp_path, "in/a/1.csv", text="id\n1\n")
    Lake(tmp_path).run()
    put(tmp_path, "in/a/2.csv", text="id\n2\n")
    off = Lake(tmp_path, infer=False)
    off.run()
    assert off.published().to_pylist() == [{"id": 1}, {"id": 2}]


def test_misfit_behind_the_sample_fails_the_run_and_the_next_run_looks_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobblin_dagster.constructs.sources.files.source.SAMPLE_BYTES", 400_000)
    lake = Lake(tmp_path)
    big = "id\n" + "12345\n" * 200_000
    put(tmp_path, "in/a/1.csv", text=big)
    put(tmp_path, "in/a/2.csv", text=big + "n/a\n")
    result = lake.run(commit={"policy": "full"})
    assert "file in/a/2.csv, row 200001: column 'id': 'n/a' does not fit int64" in result.failures[0].message
    assert lake.run(commit={"policy": "full"}).rows_read == 400_001
    assert kinds(lake.published()) == {"id": "string"}


def test_words_that_may_mean_null_are_named_with_the_option(tmp_path: Path) -> None:
    put(tmp_path, "in/a/1.csv", text='id,n\n1,NA\n2,3\n"",4\n')
    assert offer(tmp_path).type_notes[1] == (
        'if "", "NA" means null, set `null_values: ["", "NA"]` and `quoted_nulls: true`; columns that would not be '
        "text: int64: id, n."
    )
    assert "int64: id, n." in offer(tmp_path, null_values=["", "NA"], quoted_nulls=True).type_notes[0]


def test_columns_of_datasets_are_declared_by_globs(tmp_path: Path) -> None:
    put(tmp_path, "in/a/1.csv", text="id,n\n1,1\n")
    put(tmp_path, "in/b/1.csv", text="n\n1\n")
    declared = {"a": {"id": "string"}, "*": {"n": "int32"}, "a*": {"n": "float32"}}
    files = source(tmp_path, PATH, format={"type": "csv", "dataset_columns": declared})
    assert [list(one.inferred) for one in plan(files).values()] == [[], []]
    lake = Lake(tmp_path, dataset_columns=declared)
    (tmp_path / "in/b/1.csv").unlink()
    lake.run()
    assert kinds(lake.published()) == {"id": "string", "n": "float"}


def test_datasets_have_dialects_of_their_own(tmp_path: Path) -> None:
    put(tmp_path, "in/a/1.csv", text='id,n\n1,"1,5"\n')
    put(tmp_path, "in/b/1.csv", text="1;2\n'3;\n4';5\n")
    (tmp_path / "in/c").mkdir()
    (tmp_path / "in/c/1.csv").write_bytes("id;größe\n1;2\n".encode("utf-16"))
    dialects = {
        "[bc]": {"delimiter": ";"},
        "b": {"quote": "'", "header": False, "column_names": ["id", "n"]},
        "c": {"encoding": "utf-16"},
    }
    files = source(tmp_path, PATH, format={"type": "csv", "dialects": dialects})
    assert {urn: one.inferred for urn, one in plan(files).items()} == {
        "a": {"id": "int64", "n": "string"},
        "b": {"id": "string", "n": "int64"},
        "c": {"id": "int64", "größe": "int64"},
    }
    for urn, rows in {"a": 1, "b": 2, "c": 1}.items():
        (unit,) = plan(files)[urn].work_units
        reader = files.extractor(unit)
        assert sum(chunk.batch.num_rows for chunk in reader.chunks()) == rows
        read = CommittedRanges(type(unit.low), {}).add(WatermarkInterval(unit.low, unit.expected_high))
        assert files.count_rows(urn, read) == rows


def test_later_dialect_takes_back_the_names_of_an_earlier_one(tmp_path: Path) -> None:
    put(tmp_path, "in/old/1.csv", text="1,2\n")
    put(tmp_path, "in/older/1.csv", text="id,n\n1,2\n")
    dialects = {
        "old*": {"header": False, "column_names": ["a", "b"]},
        "older": {"header": True},
    }
    files = source(tmp_path, PATH, format={"type": "csv", "dialects": dialects})
    assert {urn: one.inferred for urn, one in plan(files).items()} == {
        "old": {"a": "int64", "b": "int64"},
        "older": {"id": "int64", "n": "int64"},
    }


@pytest.mark.parametrize(
    ("dialects", "said"),
    [
        ({"a": {"header": False}}, "expected either a header or `column_names`"),
        ({"a": {"delimiter": "||"}}, "at most 1 character"),
        ({"a": {"encoding": "utf-99"}}, "utf-99"),
        ({"a": {"columns": {}}}, "columns"),
    ],
)
def test_wrong_dialects_are_told(tmp_path: Path, dialects: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpecError, match=said):
        source(tmp_path, PATH, format={"type": "csv", "dialects": dialects})


def test_file_that_cannot_be_read_does_not_hinder_the_others(tmp_path: Path) -> None:
    put(tmp_path, "in/a/1.csv", text="")
    put(tmp_path, "in/a/2.csv", text="id\n1\n")
    assert offer(tmp_path).inferred == {"id": "int64"}


def test_column_that_was_published_without_a_type_stays_text(tmp_path: Path) -> None:
    put(tmp_path, "one.csv", text="id,n,m\n1,1,1\n")
    csv = file_format({"type": "csv"}, ConstructContext(job="j", base_dir=str(tmp_path)))
    assert isinstance(csv, InfersTypes)
    found = infer_types(csv, [str(tmp_path / "one.csv")], {"id": "int64"}, {"n"})
    assert found.types == {"id": "int64", "m": "int64"}


def test_plan_names_columns_that_are_new_or_gone(tmp_path: Path) -> None:
    put(tmp_path, "in/a/1.csv", text="id,n\n1,1\n")
    lake = Lake(tmp_path)
    lake.run()
    put(tmp_path, "in/a/2.csv", text="id,m\n2,2.5\n")
    (dataset,) = plan_job(project(tmp_path, lake.job()), lake.job()).datasets
    assert dataset.notes == (
        "branch 'main': column 'm' (double) is new (no schema contract: it is written as it comes).",
        "branch 'main': column 'n' (int64) is gone (no schema contract: it is written as it comes).",
    )


# -- wider numbers -----------------------------------------------------------------------------------------------------
EVOLVE = {"schema_contract": "evolve"}


def merged(lake: Lake, branch: str = "main") -> list[Any]:
    """Return the values of column `n` as readers of the newest snapshot get them, sorted."""
    table = read_published(lake.root / "lake", "j", "a").to_arrow(branch).to_table()
    return sorted(table["n"].to_pylist())


def plan_notes(lake: Lake, **parts: Any) -> tuple[str, ...]:
    job = lake.job(**parts)
    (dataset,) = plan_job(project(lake.root, job), job).datasets
    return (*dataset.type_notes, *dataset.notes)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"extract": {"namespace": "n", "table": "t", "primary_keys": ["n"]}, "publisher": "merge"},
    ],
    ids=["append", "merge"],
)
def test_whole_numbers_widen_to_decimals_if_the_contract_lets_types_evolve(
    tmp_path: Path, parts: dict[str, Any]
) -> None:
    lake, parts = Lake(tmp_path), EVOLVE | parts
    put(tmp_path, "in/a/1.csv", text="n,zip\n1,007\n9007199254740993,123\n")
    lake.run(**parts)
    put(tmp_path, "in/a/2.csv", text="n,zip\n2,008\n")
    put(tmp_path, "in/a/3.csv", text="n,zip\n5.5,009\n")
    assert plan_notes(lake, **parts) == (
        "column 'n' widens from int64 to decimal(21, 1), because of numbers in in/a/3.csv.",
        "branch 'main': column 'n' was int64, is decimal128(21, 1) (schema contract `evolve` allows it).",
    )
    assert lake.run(**parts).rows_read == 2
    assert merged(lake) == [Decimal("1.0"), Decimal("2.0"), Decimal("5.5"), Decimal("9007199254740993.0")]
    put(tmp_path, "in/a/4.csv", text="n,zip\n7,010\n")
    assert plan_notes(lake, **parts) == ()
    put(tmp_path, "in/a/5.csv", text="n,zip\n0.25,011\n12345678901234567890123,012\n")
    assert lake.run(**parts).rows_read == 3
    assert lake.run(**parts).rows_read == 0
    assert [str(value) for value in merged(lake)] == [
        "0.25",
        "1.00",
        "2.00",
        "5.50",
        "7.00",
        "9007199254740993.00",
        "12345678901234567890123.00",
    ]


def test_whole_numbers_of_a_delta_table_widen(tmp_path: Path) -> None:
    lake, parts = Lake(tmp_path), EVOLVE | {"publisher": {"type": "delta"}}
    put(tmp_path, "in/a/1.csv", text="n\n1\n9007199254740993\n")
    lake.run(**parts)
    put(tmp_path, "in/a/2.csv", text="n\n5.5\n")
    lake.run(**parts)
    (log,) = (tmp_path / "lake").rglob("_delta_log")
    table = deltalake.DeltaTable(str(log.parent)).to_pyarrow_table()
    assert sorted(table["n"].to_pylist()) == [Decimal("1.0"), Decimal("5.5"), Decimal("9007199254740993.0")]


def test_whole_numbers_stay_if_not_all_readers_would_take_decimals(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    put(tmp_path, "in/a/1.csv", text="n,m\n1,1\n")
    lake.run()
    put(tmp_path, "in/a/2.csv", text="n,m\n5.5,1\n")
    branches = [{"name": "main"}, {"name": "b", "schema_contract": "freeze"}]
    jobs: dict[str, dict[str, Any]] = {
        "no contract": {},
        "another": {"schema_contract": "fail"},
        "a branch freezes": EVOLVE | {"fork": {"branches": branches}},
        "avro": EVOLVE | {"writer": "avro"},
        "folders": EVOLVE | {"writer": {"type": "parquet", "partition_by": ["n"]}},
    }
    noted = {name: plan_notes(lake, **parts) for name, parts in jobs.items()}
    (new,) = noted.pop("a branch freezes")
    assert new.startswith("branch 'b' had no part in earlier commits")
    assert noted == dict.fromkeys(noted, ())
    (failure,) = lake.run().failures
    assert "file in/a/2.csv, row 1: column 'n': '5.5' does not fit int64" in failure.message
    assert len(plan_notes(lake, **EVOLVE)) == 2
    table = {"type": "sql_table", "url": "sqlite:///t.db", "table": "t"}
    _, begins, _ = plan_notes(lake, **EVOLVE, publisher=table)
    assert begins.startswith("the rows of branch 'main' were kept in files until now; in a database table")


def test_what_is_no_decimal_widens_no_number(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    put(tmp_path, "in/a/1.csv", text="n\n1\n")
    lake.run(**EVOLVE)
    for text in ("x", "007", "+5", "1e3", "NaN", "0." + "1" * 19, "2024-01-31", "-0"):
        put(tmp_path, "in/a/2.csv", text=f"n\n5.5\n{text}\n")
        assert plan_notes(lake, **EVOLVE) == ()
    (failure,) = lake.run(**EVOLVE).failures
    assert "file in/a/2.csv, row 1: column 'n': '5.5' does not fit int64" in failure.message


def test_declared_whole_numbers_do_not_widen(tmp_path: Path) -> None:
    put(tmp_path, "in/a/1.csv", text="n\n1\n")
    Lake(tmp_path).run(**EVOLVE)
    put(tmp_path, "in/a/2.csv", text="n\n5.5\n")
    (failure,) = Lake(tmp_path, columns={"n": "int64"}).run(**EVOLVE).failures
    assert "column 'n': '5.5' does not fit int64." in failure.message


def test_number_behind_the_sample_widens_the_column_in_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobblin_dagster.constructs.sources.files.source.SAMPLE_BYTES", 400_000)
    lake = Lake(tmp_path)
    put(tmp_path, "in/a/1.csv", text="n\n1\n")
    lake.run(**EVOLVE)
    put(tmp_path, "in/a/2.csv", text="n\n" + "12345\n" * 200_000 + "5.5\n")
    (failure,) = lake.run(**EVOLVE).failures
    assert "file in/a/2.csv, row 200001: column 'n': '5.5' does not fit int64" in failure.message
    assert lake.run(**EVOLVE).rows_read == 200_001
    assert merged(lake)[:2] == [Decimal("1.0"), Decimal("5.5")]


# -- JSON lines --------------------------------------------------------------------------------------------------------
def of_json(root: Path, *contents: str, **options: Any) -> Lake:
    for number, text in enumerate(contents):
        put(root, f"in/a/{number}.csv", text=text)
    return Lake(root, **{"type": "jsonl", **options})


def test_json_fields_may_come_and_go_nested_ones_too(tmp_path: Path) -> None:
    late = '{"id": 1}\n' * 200_000 + '{"id": 2, "geo": {"lat": 1.5}, "tags": ["a"]}\n'
    lake = of_json(tmp_path, late, '{"geo": {"lon": 2, "lat": null}, "who": {"name": "ann"}}\n')
    (note,) = offer(tmp_path, type="jsonl").type_notes
    assert note == (
        "types inferred from 200,002 rows of 2 files: int64: id; "
        '{"lat": "float64", "lon": "int64"}: geo; ["string"]: tags; {"name": "string"}: who.'
    )
    assert lake.run().rows_read == 200_002
    rows = lake.published().filter(pc.field("geo").is_valid()).sort_by("id").to_pylist()
    assert rows == [
        {"id": 2, "geo": {"lat": 1.5, "lon": None}, "tags": ["a"], "who": None},
        {"id": None, "geo": {"lat": None, "lon": 2}, "tags": None, "who": {"name": "ann"}},
    ]


def test_json_of_many_kinds_becomes_text_digit_by_digit(tmp_path: Path) -> None:
    lake = of_json(tmp_path, '{"x": 1.10}\n{"x": {"a": [12345678901234567890]}}\n{"x": "t"}\n{"x": null}\n{}\n')
    lake.run()
    texts = lake.published()["x"].to_pylist()
    assert texts == ["1.10", '{"a": [12345678901234567890]}', '"t"', None, None]


def test_json_columns_are_declared_with_shapes(tmp_path: Path) -> None:
    columns = {"geo": {"lat": "float64"}, "tags": ["int32"], "raw": "json"}
    line = '{"z": {"b": 1, "a": 2}, "geo": {"lat": 1}, "tags": [1], "raw": {"b": 1.50}}\n'
    lake = of_json(tmp_path, line, columns=columns)
    lake.run()
    (row,) = lake.published().to_pylist()
    assert row == {"geo": {"lat": 1.0}, "tags": [1], "raw": '{"b": 1.50}', "z": {"b": 1, "a": 2}}
    assert [*row["z"]] == ["b", "a"]  # in the order in which they came
    assert str(lake.published().schema.field("tags").type) == "list<element: int32>"


def test_json_field_that_comes_later_is_added_by_contract(tmp_path: Path) -> None:
    lake = of_json(tmp_path, '{"id": 1}\n')
    lake.run(schema_contract="evolve")
    for number in range(5):
        put(tmp_path, f"in/a/{number}.csv", text='{"id": 2}\n')
    put(tmp_path, "in/a/9.csv", text='{"id": 2}\n{"id": 2, "n": 2.5}\n')  # in the last row of all
    assert lake.run(schema_contract="evolve").failures == ()
    files = sorted((tmp_path / "lake").rglob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    assert kinds(pq.read_table(files[-1], partitioning=None)) == {"id": "int64", "n": "double"}
    put(tmp_path, "in/a/10.csv", text='{"id": 3, "m": 2.5}\n')
    (failure,) = lake.run(schema_contract="freeze").failures
    assert "column 'm' (double) is new" in failure.message


def test_json_objects_get_the_fields_of_later_files_by_contract(tmp_path: Path) -> None:
    lake = of_json(tmp_path, '{"id": 1, "place": {"city": "B"}, "items": [{"n": 1}]}\n')
    lake.run(**EVOLVE)
    put(tmp_path, "in/a/9.csv", text='{"id": 2, "place": {"at": {"lat": 1.5}}, "items": [{"n": 2.5, "k": "x"}]}\n')
    assert plan_notes(lake)[:2] == ()
    assert plan_notes(lake, **EVOLVE)[:2] == (
        "column 'items' gets the field(s) k, because of in/a/9.csv.",
        "column 'place' gets the field(s) at, at.lat, because of in/a/9.csv.",
    )
    (failure,) = lake.run(**EVOLVE).failures
    assert "file in/a/9.csv, row 1" in failure.message
    put(tmp_path, "in/a/9.csv", text='{"id": 2, "place": {"at": {"lat": 1.5}}, "items": [{"n": 2, "k": "x"}]}\n')
    assert lake.run(**EVOLVE).failures == ()
    table = read_published(tmp_path / "lake", "j", "a").to_arrow().to_table().sort_by("id")
    assert table["place"].to_pylist() == [{"city": "B", "at": None}, {"city": None, "at": {"lat": 1.5}}]
    assert table["items"].to_pylist() == [[{"n": 1, "k": None}], [{"n": 2, "k": "x"}]]


def test_json_field_that_was_always_null_gets_its_type_with_its_first_value(tmp_path: Path) -> None:
    lake = of_json(tmp_path, '{"id": 1, "x": null, "y": null, "z": null}\n')
    assert plan_notes(lake)[0] == "types inferred from 1 row of 1 file: int64: id; no value yet: x, y, z."
    lake.run()
    put(tmp_path, "in/a/1.csv", text='{"id": 2}\n')
    assert plan_notes(lake) == ()  # nothing of it is new
    lake.run()
    assert kinds(lake.published()) == {"id": "int64"}
    put(tmp_path, "in/a/2.csv", text='{"id": 3, "x": 2.5, "y": [1], "z": null}\n')
    assert 'float64: x; ["int64"]: y' in plan_notes(lake)[0]
    assert lake.run().failures == ()
    put(tmp_path, "in/a/3.csv", text='{"id": 4, "x": null, "z": true}\n')
    assert lake.run(schema_contract="evolve").failures == ()
    table = read_published(tmp_path / "lake", "j", "a").to_arrow().to_table().sort_by("id").select(["x", "y", "z"])
    none = {"x": None, "y": None, "z": None}
    assert table.to_pylist() == [none, none, {"x": 2.5, "y": [1], "z": None}, {**none, "z": True}]


ANY_CONVERTER = {"converters": [{"type": "sql", "select": "id, x"}]}


@pytest.mark.parametrize(
    "parts",
    [
        {"schema_contract": "freeze"},
        ANY_CONVERTER,
        {"writer": {"type": "parquet", "partition_by": ["x"]}},
        {"writer": {"type": "parquet", "partition_by": ["id"]}},  # files need a column
        {"extract": {"namespace": "n", "table": "t", "delta_fields": ["x"]}},
        {"writer": {"type": "csv", "header": False}},
        {"publisher": {"type": "sql_table", "url": "sqlite:///t.db", "table": "t", "mode": "upsert", "key": ["id"]}},
    ],
    ids=str,
)
def test_json_field_that_was_always_null_is_text_if_the_job_needs_the_column(
    tmp_path: Path, parts: dict[str, Any]
) -> None:
    (note, *_) = plan_notes(of_json(tmp_path, '{"id": 1, "x": null}\n'), **parts)
    assert note == "types inferred from 1 row of 1 file: int64: id; text: x."


def test_json_field_that_was_always_null_is_text_once_the_job_needs_it(tmp_path: Path) -> None:
    lake = of_json(tmp_path, '{"id": 1, "x": null}\n')
    lake.run()
    put(tmp_path, "in/a/1.csv", text='{"id": 2, "x": null}\n')
    assert lake.run(**ANY_CONVERTER).failures == ()
    assert read_published(tmp_path / "lake", "j", "a").to_arrow().to_table()["x"].to_pylist() == [None, None]


def test_json_field_that_was_always_null_is_text_unless_all_rows_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = of_json(tmp_path, '{"x": null}\n')
    assert plan_notes(lake)[0].endswith(": text: x.")  # rows need a column
    put(tmp_path, "in/a/1.csv", text='{"id": 1}\n')
    assert plan_notes(lake)[0].endswith(": no value yet: x; int64: id.")
    included = Lake(tmp_path, type="jsonl", include=["id", "x"])
    assert included.run().failures == ()
    monkeypatch.setattr("gobblin_dagster.constructs.sources.files.source.SAMPLE_BYTES", 10)
    put(tmp_path, "in/a/2.csv", text='{"id": 2, "x": null}\n{"id": 3, "x": "a"}\n')
    assert included.run().failures == ()
    table = read_published(tmp_path / "lake", "j", "a").to_arrow().to_table().sort_by("id")
    assert table.select(["id", "x"]).to_pylist()[-2:] == [{"id": 3, "x": "a"}, {"id": None, "x": None}]


def test_contract_has_the_name_that_dlt_gives_it(tmp_path: Path) -> None:
    lake = of_json(tmp_path, '{"id": 1}\n')
    lake.run(schema_contract="discard_value")
    put(tmp_path, "in/a/9.csv", text='{"id": 2, "n": 2.5}\n')
    lake.run(schema_contract="discard_value")
    assert lake.published().to_pylist() == [{"id": 1}, {"id": 2}]


def test_json_error_names_field_line_and_type(tmp_path: Path) -> None:
    lake = of_json(tmp_path, '{"id": 1, "n": 1}\n')
    lake.run()
    put(tmp_path, "in/a/9.csv", text='{"id": 2, "n": 2}\n{"id": 3, "n": "x"}\n')
    (failure,) = lake.run().failures
    assert "file in/a/9.csv, row 2: field 'n' is of the type string, expected number" in failure.message
    put(tmp_path, "in/a/9.csv", text='{"id": 2, "n": 2}\n{"id": 3, "n": 2.5}\n')
    (failure,) = lake.run().failures
    assert "file in/a/9.csv, row 2: field 'n' (int64): Failed to convert JSON to int64" in failure.message


def test_json_published_without_inferred_types_is_read_as_before(tmp_path: Path) -> None:
    lake = of_json(tmp_path, '{"id": 1, "x": null}\n', infer=False)
    lake.run()
    put(tmp_path, "in/a/9.csv", text='{"id": 2, "x": "t"}\n')
    again = Lake(tmp_path, type="jsonl")
    assert again.run().failures == ()
    assert kinds(again.published()) == {"id": "int64", "x": "string"}
