"""Parquet files of earlier versions, which published dictionaries and views as they came, are read and merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster import read_published
from gobblin_dagster.constructs.formats import typed_files
from gobblin_dagster.constructs.types.plain_parquet import plain_batches
from gobblin_dagster.engine.task import row_pipeline
from tests.unit.engine.jobs import by_urn, job_spec, run

CATEGORIES = pa.dictionary(pa.int8(), pa.string())


class AsItCame:
    """Rows in the form in which the source has them, as in earlier versions."""

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def _put(path: Path, ids: list[int], types: dict[str, pa.DataType]) -> None:
    texts = [f"text {number}" for number in ids]
    columns: dict[str, Any] = {"id": ids, "code": texts, "codes": [[text, None] for text in texts], "view": texts}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: pa.array(columns[name], kind) for name, kind in types.items()}), path)


@pytest.mark.parametrize("publisher", [{"type": "append"}, {"type": "merge", "key": ["id"]}], ids=["append", "merge"])
def test_what_an_earlier_version_published_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publisher: dict[str, Any]
) -> None:
    source = {"type": "files", "path": "in/{dataset}/*.parquet", "format": "parquet"}
    branches = {"branches": [{"name": "main"}]}
    job = job_spec({}, source=source, fork=branches, publisher=publisher, schema_contract="freeze")
    coded = {"id": pa.int64(), "code": CATEGORIES, "codes": pa.list_(CATEGORIES), "view": pa.string_view()}
    plain = {"id": pa.int64(), "code": pa.string(), "codes": pa.list_(pa.string()), "view": pa.string()}
    with monkeypatch.context() as earlier:
        for module in (typed_files, row_pipeline):
            earlier.setattr(module, "PlainForm", AsItCame)
            earlier.setattr(module, "plain_schema", lambda schema: schema)
        _put(tmp_path / "in" / "a" / "1.parquet", [1, 2], coded)
        assert by_urn(run(tmp_path, job))["a"].snapshot == 1
    (first,) = read_published(tmp_path / "lake", job.job, "a").paths("main")
    assert pq.ParquetFile(first).schema_arrow.types == [*coded.values()]
    _put(tmp_path / "in" / "a" / "2.parquet", [3], plain)
    assert by_urn(run(tmp_path, job))["a"].snapshot == 2
    table = read_published(tmp_path / "lake", job.job, "a").to_arrow("main").to_table().sort_by("id")
    assert table.schema.types == [*plain.values()]
    assert table["id"].to_pylist() == [1, 2, 3]
    assert table["codes"].to_pylist() == [[text, None] for text in table["code"].to_pylist()]
    assert table["view"].to_pylist() == table["code"].to_pylist() == ["text 1", "text 2", "text 3"]


def test_dictionaries_inside_of_lists_are_read_from_all_row_groups(tmp_path: Path) -> None:
    rows = [["a"], None, ["b", None, "c"], []]
    path = tmp_path / "day.parquet"
    pq.write_table(pa.table({"l": pa.array(rows, pa.list_(CATEGORIES)), "n": [1, 2, 3, 4]}), path, row_group_size=1)
    with pq.ParquetFile(path) as file:
        batches = list(plain_batches(file, 2, ["l"]))
    assert [batch.schema.names for batch in batches] == [["l"]] * 4
    assert [row for batch in batches for row in batch["l"].to_pylist()] == rows
