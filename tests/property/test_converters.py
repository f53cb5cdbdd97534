"""Laws of converters: no row is lost or moved, and how rows come in batches changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Chunk, ConstructContext, Converter
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.engine.task.row_pipeline import RowPipeline
from gobblin_dagster.spec.job import ConverterSpec

CONTEXT = ConstructContext(job="laws", base_dir="/", dataset_urn="d")
TEXTS = st.lists(
    st.one_of(st.none(), st.sampled_from(["1", "-7", "x", "1.5", "", "12345678901234567890"])), max_size=40
)
WORDS = st.lists(st.one_of(st.none(), st.text(alphabet="ab;\"',\n", max_size=8)), max_size=20)
LISTS = st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=4)), max_size=20)
CUTS = st.integers(1, 7)


def _chunks(name: str, values: list[Any], kind: pa.DataType, size: int) -> list[Chunk]:
    """Return values as chunks of at most `size` rows, which are parts of one batch."""
    batch = pa.record_batch({name: pa.array(values, kind), "at": pa.array(range(len(values)), pa.int64())})
    rows = pa.array(range(1, len(values) + 1), pa.int64())
    return [Chunk(batch.slice(at, size), "f", rows.slice(at, size)) for at in range(0, len(values), size)]


def _converter(spec: dict[str, Any]) -> Converter:
    made: Converter = registry.create(ConstructKind.CONVERTER, ConverterSpec.model_validate(spec), CONTEXT)
    return made


def _rows(converter: Converter, chunks: list[Chunk], column: str) -> list[tuple[int, Any]]:
    """Return (place, value) of each row that comes out."""
    parts = list(itertools.chain.from_iterable(converter.convert(chunk) for chunk in chunks))
    for part in parts:
        assert part.batch.column("at").to_pylist() == [row - 1 for row in part.rows.to_pylist()]
    return [
        pair
        for part in parts
        for pair in zip(part.rows.to_pylist(), part.batch.column(column).to_pylist(), strict=True)
    ]


def _number(text: str | None) -> int | None:
    return None if text in (None, "") else int(text)


def _is_number(text: str | None) -> bool:
    try:
        number = _number(text)
    except ValueError:
        return False
    return number is None or -(2**63) <= number < 2**63


@settings(max_examples=60)
@given(TEXTS, CUTS)
def test_tolerant_stage_loses_exactly_the_bad_rows(texts: list[str | None], size: int) -> None:
    rejected: list[int] = []
    spec = {"type": "columns", "columns": {"text": "int64"}, "on_error": "quarantine"}
    stage = RowPipeline(
        "all",
        [ConverterSpec.model_validate(spec)],
        [],
        CONTEXT,
        lambda chunk, *_: rejected.extend(chunk.rows.to_pylist()),
    )
    stage.open(pa.schema([("text", pa.string()), ("at", pa.int64())]))
    out = [part for chunk in _chunks("text", texts, pa.string(), size) for part in stage.process(chunk)]
    good = [(at + 1, _number(text)) for at, text in enumerate(texts) if _is_number(text)]
    assert [
        pair for part in out for pair in zip(part.rows.to_pylist(), part.batch["text"].to_pylist(), strict=True)
    ] == good
    assert rejected == [at + 1 for at, text in enumerate(texts) if not _is_number(text)]
    assert (stage.rejected["columns"], stage.rows_filtered) == (len(rejected), 0)


@settings(max_examples=60)
@given(LISTS, CUTS, st.booleans())
def test_explode_gives_the_items_in_order_at_the_place_of_their_row(lists: list[Any], size: int, keep: bool) -> None:
    converter = _converter({"type": "explode", "column": "items", "keep_empty": keep})
    rows = _rows(converter, _chunks("items", lists, pa.list_(pa.int64()), size), "items")
    assert rows == [(at + 1, item) for at, items in enumerate(lists) for item in items or [None] * keep]


@settings(max_examples=60)
@given(st.lists(st.none() | st.lists(st.none() | LISTS, max_size=3), max_size=5), CUTS)
def test_child_table_gives_the_items_of_lists_in_lists_with_their_places(lists: list[Any], size: int) -> None:
    inner = pa.list_(pa.struct({"ns": pa.list_(pa.list_(pa.int64()))}))
    nested = [None if items is None else [None if one is None else {"ns": one} for one in items] for items in lists]
    chunks = _chunks("items", nested, inner, size)
    converter = _converter({"type": "child_table", "list": "items.ns", "keys": ["items"], "key_prefix": "of_"})
    rows = [
        (row, *values)
        for part in (part for chunk in chunks for part in converter.convert(chunk))
        for row, *values in zip(
            part.rows.to_pylist(),
            *(part.batch[name].to_pylist() for name in ("items_number", "ns_number", "value")),
            strict=True,
        )
    ]
    assert rows == [
        (at + 1, outer, place, value)
        for at, items in enumerate(lists)
        for outer, one in enumerate(items or [])
        for place, value in enumerate(one or [])
    ]


@settings(max_examples=60)
@given(WORDS, CUTS)
def test_split_gives_the_parts_that_hold_text(words: list[str | None], size: int) -> None:
    rows = _rows(
        _converter({"type": "split", "column": "s", "delimiter": ";"}), _chunks("s", words, pa.string(), size), "s"
    )
    assert rows == [(at + 1, part) for at, word in enumerate(words) for part in (word or "").split(";") if part]


@settings(max_examples=60)
@given(WORDS, CUTS)
def test_csv_text_reads_what_a_csv_writer_wrote(words: list[str | None], size: int) -> None:
    import csv
    import io

    def line(word: str) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow([word, "end"])
        return out.getvalue()

    # A line end inside quotes is for files; one text is one row.
    words = [None if word is None else word.replace("\n", "") for word in words]
    texts = [None if word is None else line(word) for word in words]
    converter = _converter({"type": "csv_text", "column": "s", "columns": ["word", "end"], "nulls": []})
    assert _rows(converter, _chunks("s", texts, pa.string(), size), "word") == [
        (at + 1, w) for at, w in enumerate(words)
    ]


@settings(max_examples=60)
@given(WORDS, CUTS)
def test_dedup_keeps_the_first_of_each_key_however_rows_come_in_batches(words: list[str | None], size: int) -> None:
    rows = _rows(_converter({"type": "dedup", "by": ["s"]}), _chunks("s", words, pa.string(), size), "s")
    assert rows == [(words.index(word) + 1, word) for word in dict.fromkeys(words)]


@settings(max_examples=60)
@given(WORDS, CUTS)
def test_json_text_reads_what_to_json_wrote(words: list[str | None], size: int) -> None:
    chunks = _chunks("s", words, pa.string(), size)
    packed = [part for chunk in chunks for part in _converter({"type": "to_json", "columns": ["s"]}).convert(chunk)]
    unpack = _converter({"type": "json_text", "column": "json", "columns": {"s": "string"}})
    assert _rows(unpack, packed, "s") == [(at + 1, word) for at, word in enumerate(words)]


@settings(max_examples=60)
@given(TEXTS.filter(lambda texts: not all(map(_is_number, texts))), CUTS)
def test_strict_converter_names_the_first_bad_row(texts: list[str | None], size: int) -> None:
    converter = _converter({"type": "schema", "columns": {"text": "int64", "at": "int64"}})
    first = next(at + 1 for at, text in enumerate(texts) if text is not None and not (text and _is_number(text)))
    with pytest.raises(ConvertError, match=rf"row {first}: column 'text': expected int64, got "):
        list(itertools.chain.from_iterable(converter.convert(c) for c in _chunks("text", texts, pa.string(), size)))
