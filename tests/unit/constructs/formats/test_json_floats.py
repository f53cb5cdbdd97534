"""NaN and infinities of published JSON lines are floats again, at every level, on any storage and if packed."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest

from gobblin_dagster.constructs.formats.json_floats import with_plain_floats
from gobblin_dagster.engine.snapshots.reader import read_published
from tests.unit.engine.jobs import job_spec, run

_TYPES: dict[str, pa.DataType | None] = {
    "id": pa.int64(),
    "x": pa.float32(),
    "t": pa.string(),
    "n": pa.struct([("l", pa.list_(pa.float64())), ("t", pa.string())]),
    "m": pa.map_(pa.string(), pa.float64()),
    "unknown": None,
}
_LINES = (
    b'{"id":1,"x":"nan","t":"nan","n":{"l":["inf",0.10000000000000000555],"t":"-inf"},"m":{"nan":"-inf"}}\n'
    b'{"id":2,"x":"-nan","t":"\\"x\\":\\"nan\\"","n":null,"m":{"nan":9007199254740993.0}}\n'
)
_PLAIN = (
    b'{"id": 1, "x": NaN, "t": "nan", "n": {"l": [Infinity, 0.10000000000000000555], "t": "-inf"}, '
    b'"m": {"nan": -Infinity}}\n'
    b'{"id": 2, "x": NaN, "t": "\\"x\\":\\"nan\\"", "n": null, "m": {"nan": 9007199254740993.0}}\n'
)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_texts_at_places_of_floats_become_floats_and_nothing_else_changes(tmp_path: Path, ending: str) -> None:
    other = b'{"t":"nan"}\n{"id":1,"id":2,"x":"nan"}\nno JSON, "nan"\n{"t":"' + b"y" * (3 << 20) + b'"}\n{"x":"inf"}'
    path = tmp_path / f"a.{ending}"
    path.write_bytes(gzip.compress(_LINES + other) if ending.endswith("gz") else _LINES + other)
    files = pickle.loads(pickle.dumps(with_plain_floats(pafs.LocalFileSystem(), _TYPES)))
    with files.open_input_stream(str(path), buffer_size=7) as stream:
        assert stream.read() == _PLAIN + other.replace(b'{"x":"inf"}', b'{"x": Infinity}')
    with pytest.raises(NotImplementedError):
        files.delete_file(str(path))


def test_files_without_floats_are_read_as_they_are() -> None:
    plain = pafs.LocalFileSystem()
    assert with_plain_floats(plain, {"id": pa.int64(), "t": pa.string(), "unknown": None}) is plain


def test_each_text_format_reads_nan_and_infinities_with_their_types(tmp_path: Path) -> None:
    select = (
        "id, CASE id WHEN 0 THEN 'nan' WHEN 1 THEN 'inf' WHEN 2 THEN '-inf' ELSE '0.1' END::DOUBLE AS x, 'nan' AS t, "
        "{'x': [x], 't': t} AS n"
    )
    job = job_spec(
        {"a": {"rows": 4}},
        converters=[{"type": "sql", "select": select}],
        fork={
            "branches": [
                {"name": "jsonl", "writer": {"type": "jsonl", "partition_by": ["t"]}},
                {"name": "gzip", "writer": {"type": "jsonl", "compression": "gzip"}},
                {"name": "csv", "writer": "csv", "converters": [{"type": "drop", "columns": ["n"]}]},
            ]
        },
    )
    assert run(tmp_path, job).datasets[0].problem == ""
    for branch in job.fork.branches:
        files: ds.Dataset = read_published(tmp_path / "lake", "numbers", "a").to_arrow(branch.name)
        table = files.to_table().sort_by("id")
        assert str(table["x"].to_pylist()) == "[nan, inf, -inf, 0.1]"
        assert table["t"].to_pylist() == ["nan"] * 4
        if "n" in table.column_names:
            assert str(table["n"].to_pylist()[:2]) == "[{'x': [nan], 't': 'nan'}, {'x': [inf], 't': 'nan'}]"
        assert files.filter(ds.field("id") == 0).count_rows() == 1
