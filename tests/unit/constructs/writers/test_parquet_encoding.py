from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.constructs.writers.parquet_encoding import FEWEST_ROWS, choose_encodings
from tests.unit.constructs.writers.staging import make, where, write_all

ROWS = 20_000
IDS = np.arange(ROWS) + 10**15
DICE = np.random.default_rng(1)


def _written(table: pa.Table, **options: object) -> pq.ParquetFile:
    context = where(table.schema)
    (file,) = write_all(make(ParquetWriter, context, **options), table)
    parquet = pq.ParquetFile(io.BytesIO(context.storage.read(file.path)))
    assert parquet.read().equals(table)
    return parquet


def _encodings(parquet: pq.ParquetFile) -> dict[str, set[str]]:
    group = parquet.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: set(column.encodings) - {"RLE"} for column in columns}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array(IDS), "DELTA_BINARY_PACKED"),
        (pa.array(IDS, mask=IDS % 3 == 0), "DELTA_BINARY_PACKED"),
        (pa.array(np.arange(ROWS, dtype=np.int32)), "DELTA_BINARY_PACKED"),
        (pa.array(IDS).cast(pa.timestamp("us", "UTC")), "DELTA_BINARY_PACKED"),
        (pa.array(np.arange(ROWS, dtype=np.int32)).cast(pa.date32()), "DELTA_BINARY_PACKED"),
        (pa.array(DICE.integers(-(2**63), 2**63 - 1, ROWS)), "PLAIN"),
        (pa.array(DICE.integers(0, 200, ROWS) * 7919), "RLE_DICTIONARY"),
        (pa.array([7] * ROWS), "RLE_DICTIONARY"),
        (pa.nulls(ROWS, pa.int64()), "RLE_DICTIONARY"),
        (pa.array([str(number) for number in range(ROWS)]), "RLE_DICTIONARY"),
    ],
    ids=["ids", "ids and nulls", "int32", "instants", "days", "noise", "few values", "constant", "nulls", "texts"],
)
def test_encoding_follows_from_the_first_rows(values: pa.Array, expected: str) -> None:
    encodings = _encodings(_written(pa.table({"v": values})))
    # After a dictionary becomes too large, later values are plain.
    assert expected in encodings["v"]
    assert expected == "RLE_DICTIONARY" or encodings["v"] == {expected}


def test_columns_beside_keep_their_dictionaries() -> None:
    nested = pa.array([{"a": number % 5, "b": [number % 3]} for number in range(ROWS)])
    encodings = _encodings(_written(pa.table({"id": IDS, "a.b": IDS, "text": ["x"] * ROWS, "part": nested})))
    assert encodings["id"] == encodings["a.b"] == {"DELTA_BINARY_PACKED"}
    assert all("RLE_DICTIONARY" in encodings[path] for path in encodings.keys() - {"id", "a.b"})
    assert len(encodings) == 5


def test_columns_beside_may_be_lists_of_ids() -> None:
    keys = pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), pa.array([bytes(16)] * ROWS, pa.uuid()))
    encodings = _encodings(_written(pa.table({"id": IDS, "keys": keys})))
    assert encodings["id"] == {"DELTA_BINARY_PACKED"}
    assert "RLE_DICTIONARY" in encodings["keys.list.element"]


def test_small_files_are_not_looked_at() -> None:
    assert choose_encodings(pa.table({"id": IDS[: FEWEST_ROWS - 1]})) == {}
    assert choose_encodings(pa.table({"id": IDS[:FEWEST_ROWS]})) == {"id": "DELTA_BINARY_PACKED"}


def test_encoding_dictionary_is_for_old_readers() -> None:
    encodings = _encodings(_written(pa.table({"id": IDS}), encoding="dictionary"))
    assert "DELTA_BINARY_PACKED" not in encodings["id"]


def test_ids_take_less_than_by_a_dictionary() -> None:
    table = pa.table({"id": IDS, "at": pa.array(IDS * 1_000_003).cast(pa.timestamp("us"))})
    sizes = [
        sum(_written(table, encoding=way).metadata.row_group(0).column(n).total_compressed_size for n in range(2))
        for way in ("auto", "dictionary")
    ]
    assert sizes[0] < sizes[1] / 10


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1, max_size=40), st.integers(1, 3))
def test_whatever_the_values_are_they_come_back(values: list[int | None], step: int) -> None:
    column = pa.array((values * (FEWEST_ROWS // len(values) + 1))[::step] * step, pa.int64())
    _written(pa.table({"v": column, "n": np.arange(len(column))}))
