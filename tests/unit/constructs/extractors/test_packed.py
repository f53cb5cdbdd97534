"""Packed text: what the ending of a name says, in small memory, and damaged files named with their row."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.core.errors import ExtractError
from tests.unit.constructs.extractors.reading import peak_bytes, read

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}
TEXTS: dict[str, Callable[[int], bytes]] = {
    "csv": lambda n: b"id,text\n" + b"".join(b"%d,row %d\n" % (i, i * 7919 % 1000) for i in range(1, n + 1)),
    "jsonl": lambda n: b"".join(b'{"id": %d, "text": "row %d"}\n' % (i, i * 7919 % 1000) for i in range(1, n + 1)),
    "text": lambda n: b"".join(b"%d row %d\n" % (i, i * 7919 % 1000) for i in range(1, n + 1)),
}
packed = pytest.mark.parametrize("ending", sorted(PACKERS))
texts = pytest.mark.parametrize("kind", sorted(TEXTS))


def options(kind: str) -> dict[str, Any]:
    return {"type": kind, "columns": {"id": "int64"}} if kind == "csv" else {"type": kind}


@packed
@texts
def test_packed_text_is_read_by_its_ending(tmp_path: Path, kind: str, ending: str) -> None:
    (tmp_path / f"day.{kind}.{ending.upper()}").write_bytes(PACKERS[ending](TEXTS[kind](3)))
    assert read(tmp_path, f"day.{kind}.{ending.upper()}", **options(kind)).column("_row").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_files_put_one_behind_the_other_are_read_whole(tmp_path: Path, ending: str) -> None:
    pack = PACKERS[ending]
    (tmp_path / f"day.csv.{ending}").write_bytes(pack(b"id\n1\n2\n") + pack(b"3\n"))
    assert read(tmp_path, f"day.csv.{ending}", type="csv").column("id").to_pylist() == ["1", "2", "3"]


@packed
@texts
def test_cut_off_file_is_named_with_the_row_that_was_reached(tmp_path: Path, kind: str, ending: str) -> None:
    whole = PACKERS[ending](TEXTS[kind](120_000))
    (tmp_path / f"day.{kind}.{ending}").write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(ExtractError) as caught:
        read(tmp_path, f"day.{kind}.{ending}", block_bytes=1 << 12, **options(kind))
    assert caught.value.file == f"day.{kind}.{ending}"
    assert caught.value.row is not None or "behind row " in str(caught.value)


@packed
def test_damaged_file_is_named(tmp_path: Path, ending: str) -> None:
    whole = bytearray(PACKERS[ending](TEXTS["csv"](50_000)))
    whole[len(whole) // 2 : len(whole) // 2 + 99] = b"\x55" * 99
    (tmp_path / f"day.csv.{ending}").write_bytes(whole)
    with pytest.raises(ExtractError, match=rf"file day\.csv\.{ending}"):
        read(tmp_path, f"day.csv.{ending}", block_bytes=1 << 14, **options("csv"))


@packed
@pytest.mark.parametrize("kind", ["csv", "text"])
def test_memory_is_a_part_of_what_is_unpacked(tmp_path: Path, kind: str, ending: str) -> None:
    text = TEXTS[kind](1_000_000)
    (tmp_path / f"day.{kind}.{ending}").write_bytes(PACKERS[ending](text))
    assert peak_bytes(tmp_path, f"day.{kind}.{ending}", block_bytes=1 << 14, **options(kind)) < len(text) / 3
