"""Files of narrower and wider types are read as one table, from each format."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.snapshots.reader import load_published, read_published
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import job_spec, project, run

_NARROW = {
    "n": "1::INTEGER",
    "f": "2147483647::INTEGER",
    "d": "9223372036854775807::BIGINT",
    "x": "1.25::DECIMAL(8, 2)",
    "t": "DATE '2024-01-31'",
    "u": "TIMESTAMP_MS '2024-01-31 00:00:00.5'",
    "s": "[{'a': id}]",
}
_WIDE = {
    "n": "1099511627776::BIGINT",
    "f": "1.5::DOUBLE",
    "d": "1.25::DECIMAL(22, 2)",
    "x": "1.00001::DECIMAL(12, 5)",
    "t": "TIMESTAMP '2024-02-01 10:00:00.123456'",
    "u": "TIMESTAMP '2024-02-01 10:00:00.123456'",
    "s": "[{'a': id, 'b': 'x'}]",
}
_LEFT_OUT = {"csv": ["s"], "orc": ["t"]}
"""Columns that a format does not have, or not in the wider type."""
WIDENED: dict[str, list[Any]] = {
    "n": [1, 1 << 40],
    "f": [2147483647.0, 1.5],
    "d": [Decimal("9223372036854775807.00"), Decimal("1.25")],
    "x": [Decimal("1.25000"), Decimal("1.00001")],
    "t": [datetime(2024, 1, 31), datetime(2024, 2, 1, 10, 0, 0, 123456)],
    "u": [datetime(2024, 1, 31, 0, 0, 0, 500_000), datetime(2024, 2, 1, 10, 0, 0, 123456)],
    "s": [[{"a": 0, "b": None}], [{"a": 1, "b": "x"}]],
}


def publish_wider(root: Path, *writers: str) -> JobSpec:
    """Publish a row of narrow types, then one of wider types, to a branch for each writer, and return the job."""
    without = {name: [{"type": "drop", "columns": columns}] for name, columns in _LEFT_OUT.items()}
    branches = [{"name": one, "writer": one, "converters": without.get(one, [])} for one in writers]
    for rows, columns in ((1, _NARROW), (2, _WIDE)):
        select = ", ".join(["id", *(f"{value} AS {name}" for name, value in columns.items())])
        job = job_spec(
            {"a": {"rows": rows}},
            converters=[{"type": "sql", "select": select}],
            fork={"branches": branches},
            schema_contract="evolve",
        )
        assert run(root, job).datasets[0].problem == ""
    return job


def test_each_format_reads_older_files_in_the_wider_types(tmp_path: Path) -> None:
    job = publish_wider(tmp_path, "parquet", "orc", "csv", "jsonl")
    for branch in job.fork.branches:
        table = read_published(tmp_path / "lake", "numbers", "a").to_arrow(branch.name).to_table().sort_by("id")
        expected = {name: values for name, values in WIDENED.items() if name in table.schema.names}
        assert table.drop(["id"]).to_pydict() == expected
        assert len(expected) == 7 - len(_LEFT_OUT.get(branch.name, []))


def test_files_without_header_that_have_fewer_columns_are_named(tmp_path: Path) -> None:
    for rows, columns in ((1, "id"), (2, "id, 'x' AS name")):
        job = job_spec(
            {"a": {"rows": rows}},
            converters=[{"type": "sql", "select": columns}],
            fork={"branches": [{"name": "all", "writer": {"type": "csv", "header": False}}]},
            schema_contract="evolve",
        )
        assert run(tmp_path, job).datasets[0].problem == ""
    told = r"have no header, and '.*\.csv' has rows of 1 columns; the dataset has 2: id, name.*null_padding"
    with pytest.raises(UsageError, match=told):
        load_published(project(tmp_path, job), job, "a").to_arrow()


def test_avro_refuses_what_its_readers_do_not_take_for_older_values(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"'d' was int64, is decimal.*cannot become a decimal for whole numbers"):
        publish_wider(tmp_path, "avro")


def short_types(*_: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a source that has types which no declaration makes."""
    yield pa.record_batch(
        {
            "of_32": pa.array([Decimal("1.50"), None], pa.decimal32(7, 2)),
            "of_64": pa.array([Decimal("12345678901.5"), None], pa.decimal64(15, 1)),
            "bytes": pa.array([b"abc", None], pa.binary(3)),
        }
    )


def test_decimals_of_32_and_64_bits_are_read_back_as_decimals(tmp_path: Path) -> None:
    source = {"type": "python", "read": f"{__name__}:short_types"}
    branches = [{"name": one, "writer": one} for one in ("csv", "jsonl", "parquet")]
    job = job_spec({}, source=source, fork={"branches": branches})
    (done,) = run(tmp_path, job).datasets
    assert done.problem == ""
    for branch in ("csv", "jsonl", "parquet"):
        rows = read_published(tmp_path / "lake", "numbers", done.dataset_urn).to_arrow(branch).to_table().to_pydict()
        written = "YWJj" if branch == "jsonl" else b"abc"
        assert rows == {
            "of_32": [Decimal("1.50"), None], "of_64": [Decimal("12345678901.5"), None], "bytes": [written, None],
        }  # fmt: skip
