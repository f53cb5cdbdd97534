from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from gobblin_dagster.constructs.extractors.format import InputFile
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ExtractError
from tests.unit.constructs.extractors.reading import extractor, file_format, read


def write(path: Path, **columns: Any) -> None:
    parquet.write_table(pa.table(columns), path)


def read_parquet(root: Path, *names: str, block_bytes: int = 1 << 20, **options: Any) -> pa.Table:
    return read(root, *names, block_bytes=block_bytes, type="parquet", **options)


def test_rows_are_numbered_and_read_in_batches_of_about_a_block(tmp_path: Path) -> None:
    write(tmp_path / "day.parquet", id=list(range(1, 100_001)), text=["x" * 20 + str(n) for n in range(100_000)])
    table = read_parquet(tmp_path, "day.parquet")
    assert table.column("_row").to_pylist() == table.column("id").to_pylist()
    reader = extractor(tmp_path, "day.parquet", type="parquet", block_bytes=1 << 16)
    assert max(chunk.batch.num_rows for chunk in reader.chunks()) < 5_000
    assert reader.bytes_read == (tmp_path / "day.parquet").stat().st_size


def test_columns_are_found_by_name_in_each_file(tmp_path: Path) -> None:
    write(tmp_path / "one.parquet", a=[1], b=["x"])
    write(tmp_path / "two.parquet", b=["y"], a=[2])
    assert read_parquet(tmp_path, "one.parquet", "two.parquet").select(["a", "b"]).to_pylist() == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_include_reads_fewer_columns_in_the_given_order(tmp_path: Path) -> None:
    write(tmp_path / "day.parquet", a=[1], b=["x"], c=[{"d": 2}])
    assert read_parquet(tmp_path, "day.parquet", include=["c", "a"]).select([0, 1]).to_pylist() == [
        {"c": {"d": 2}, "a": 1}
    ]
    with pytest.raises(ExtractError, match="named in `include`"):
        read_parquet(tmp_path, "day.parquet", include=["z"])


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ({"a": [1]}, "expected the column"),
        ({"a": [1], "b": ["x"], "c": [1]}, "which the first file of its work unit lacks"),
        ({"a": ["1"], "b": ["x"]}, "column 'a' is of type string, in the first file of its work unit it is int64"),
    ],
    ids=["one-less", "one-more", "another-type"],
)
def test_later_file_of_another_schema_is_refused(tmp_path: Path, second: dict[str, Any], problem: str) -> None:
    write(tmp_path / "one.parquet", a=[1], b=["x"])
    write(tmp_path / "two.parquet", **second)
    with pytest.raises(ExtractError, match=rf"file two\.parquet: .*{problem}"):
        read_parquet(tmp_path, "one.parquet", "two.parquet")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_truncated_file_is_no_complete_parquet_file(tmp_path: Path, share: float) -> None:
    write(tmp_path / "day.parquet", id=list(range(1000)))
    data = (tmp_path / "day.parquet").read_bytes()
    (tmp_path / "day.parquet").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ExtractError, match=r"file day\.parquet: is no complete Parquet file"):
        read_parquet(tmp_path, "day.parquet")


def test_damaged_page_is_an_error_of_its_file(tmp_path: Path) -> None:
    write(tmp_path / "day.parquet", id=[f"{n * 7919}" for n in range(10_000)])
    data = bytearray((tmp_path / "day.parquet").read_bytes())
    data[10:2000] = b"\x00" * 1990
    (tmp_path / "day.parquet").write_bytes(data)
    with pytest.raises(ExtractError, match=r"file day\.parquet: cannot be read"):
        read_parquet(tmp_path, "day.parquet")


def test_count_rows_reads_the_footer_and_empty_files_have_none(tmp_path: Path) -> None:
    write(tmp_path / "day.parquet", id=list(range(7)))
    write(tmp_path / "empty.parquet", id=pa.array([], pa.int64()))
    parquet_format = file_format({"type": "parquet"}, ConstructContext(job="flights", base_dir=str(tmp_path)))
    assert parquet_format.count_rows(InputFile(str(tmp_path / "day.parquet"))) == 7
    assert read_parquet(tmp_path, "empty.parquet", "day.parquet").num_rows == 7
