"""What every format promises of files that its writer published, over all that we ship and two that a user brings."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest

from gobblin_dagster.constructs.formats import csv_published
from gobblin_dagster.constructs.formats.published import DatasetFormat
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.testing.conformance import PublishedFormatConformance
from tests.unit.engine import made_up

ROWS = pa.record_batch({"id": [1, 2, 3], "code": ["007", None, 'x, "y"'], "price": [0.5, None, 1e300]})
CASES: dict[str, Mapping[str, Any]] = {
    "avro": {},
    "csv": {},
    "csv without header": {"header": False, "delimiter": ";"},
    "csv packed": {"compression": "gzip"},
    "jsonl": {},
    "jsonl packed": {"compression": "gzip"},
    "orc": {},
    "parquet": {},
}
"""Options of the writer, by type."""


class TestPublishedFormats(PublishedFormatConformance):
    rows = ROWS

    @pytest.fixture(autouse=True, params=CASES)
    def case(self, request: pytest.FixtureRequest) -> None:
        name = request.param.partition(" ")[0]
        self.writer = {"type": name, **CASES[request.param]}
        self.published = registry.load(ConstructKind.FORMAT, name).Published


class TestPublishedCsvOfHalves(PublishedFormatConformance):
    published = registry.load(ConstructKind.FORMAT, "csv").Published
    writer = {"type": "csv"}
    rows = pa.record_batch(
        {
            "half": pa.array([0.5, None, -65504.0], pa.float16()),
            "short": pa.array([Decimal("0.5")] * 3, pa.decimal32(5, 1)),
        }
    )
    types = {"half": pa.float32(), "short": pa.decimal128(5, 1)}

    def test_decimals_of_any_length_keep_all_digits(self, tmp_path: Path) -> None:
        values = pa.array([Decimal("9" * 75 + ".5"), None, Decimal("-0.1")], pa.decimal256(76, 1))
        (file,) = self.written(tmp_path, "commit", pa.record_batch({"id": [1, 2, 3], "long": values}))
        made, types = self.made, {"id": pa.int64(), "long": values.type}
        assert isinstance(made, DatasetFormat)
        table = ds.dataset([file.path], format=made.arrow_format([], types)).to_table()
        assert table["long"].to_pylist() == ["9" * 75 + ".5", None, "-0.1"]


class TestPublishedText(PublishedFormatConformance):
    published = registry.load(ConstructKind.FORMAT, "text").Published
    writer = {"type": "text"}
    rows = pa.record_batch({"line": ["a", "b"]})


class TestPublishedFeather(PublishedFormatConformance):
    published = made_up.PublishedFeather
    writer = {"type": f"{made_up.__name__}:FeatherWriter"}
    rows = ROWS


class TestPublishedPipes(PublishedFormatConformance):
    published = made_up.PublishedPipes
    writer = {"type": f"{made_up.__name__}:PipesWriter"}
    rows = pa.record_batch({"id": [1, 2], "code": ["a", "b"]})


def test_every_format_is_tested_here() -> None:
    assert {name.partition(" ")[0] for name in CASES} | {"text"} == {*registry.file_formats()}


def test_csv_is_read_back_with_all_line_ends_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_published, "_BLOCK_BYTES", 2001)
    texts = {"a": "x" * 9 + "\r\n" * 40, "b": "y" * 40 + "\r\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_bytes(b"v\n" + f'"{text}"\n'.encode() * 200)
    paths = [f"{tmp_path}/{name}.csv" for name in texts]
    files = pafs.LocalFileSystem()
    form = csv_published.PublishedCsv({}).fitted(files, paths)
    found = ds.dataset(paths, filesystem=files, format=form.arrow_format([], {"v": pa.string()}))
    assert found.to_table()["v"].to_pylist() == [text for text in texts.values() for _ in range(200)]
