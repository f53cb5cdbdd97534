from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.formats.base import InputFile, TypeSample
from gobblin_dagster.constructs.formats.csv import CsvFormat, CsvOptions
from gobblin_dagster.constructs.formats.json_blocks import blocks
from gobblin_dagster.constructs.formats.json_sample import JsonSample
from gobblin_dagster.core.errors import ExtractError
from tests.unit.constructs.formats.reading import read
from tests.unit.constructs.samples import CONTEXT

PACKERS: dict[str, Any] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}
LINES = b"".join(b"%d\n" % number for number in range(40_000))
packed = pytest.mark.parametrize("kind", PACKERS)


def read_packed(root: Path, kind: str, data: bytes) -> list[str]:
    (root / f"day.txt.{kind}").write_bytes(data)
    lines: list[str] = read(root, f"day.txt.{kind}", block_bytes=1 << 16, type="text").column("line").to_pylist()
    return lines


@packed
def test_streams_behind_each_other_are_one_file(tmp_path: Path, kind: str) -> None:
    pack = PACKERS[kind]
    data = pack(LINES[:70_001]) + pack(b"") + pack(LINES[70_001:])
    assert read_packed(tmp_path, kind, data) == LINES.decode().split()


@pytest.mark.parametrize("kind", ["bz2", "xz"])
def test_zeros_between_streams_are_padding(tmp_path: Path, kind: str) -> None:
    pack = PACKERS[kind]
    data = pack(LINES[:70_001]) + bytes(200_000) + pack(LINES[70_001:]) + bytes(8)
    assert read_packed(tmp_path, kind, data) == LINES.decode().split()


@packed
def test_stream_whose_first_byte_is_damaged_is_not_taken_for_the_end(tmp_path: Path, kind: str) -> None:
    first, second = PACKERS[kind](LINES), bytearray(PACKERS[kind](LINES))
    second[0] ^= 0x55
    with pytest.raises(ExtractError, match=rf"file day\.txt\.{kind}: cannot be read"):
        read_packed(tmp_path, kind, first + second)


@packed
@pytest.mark.parametrize("kept", [1, 5, 12, 500, -1], ids=str)
def test_second_stream_that_is_cut_off_is_an_error(tmp_path: Path, kind: str, kept: int) -> None:
    first, second = PACKERS[kind](LINES), PACKERS[kind](LINES)
    with pytest.raises(ExtractError, match=rf"file day\.txt\.{kind}: cannot be read"):
        read_packed(tmp_path, kind, first + second[:kept])


@packed
def test_packed_file_without_bytes_is_an_interrupted_upload(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ExtractError, match=rf"file day\.txt\.{kind}: is empty.*upload"):
        read_packed(tmp_path, kind, b"")
    assert read_packed(tmp_path, kind, PACKERS[kind](b"")) == []


@packed
@pytest.mark.parametrize("kind_of_file", ["csv", "jsonl"])
def test_damaged_file_is_passed_over_while_types_are_inferred(tmp_path: Path, kind: str, kind_of_file: str) -> None:
    (tmp_path / f"bad.{kind_of_file}.{kind}").write_bytes(b"id,v" * 100)
    sample: TypeSample = JsonSample(blocks, 1 << 10, (), (), ())
    if kind_of_file == "csv":
        sample = CsvFormat(CsvOptions(), CONTEXT).sample(())
    sample.look(InputFile(str(tmp_path / f"bad.{kind_of_file}.{kind}")), 1 << 20)
    assert sample.types() == {}
