"""RestExtractor: read the records of one interval from a list of an HTTP API, page by page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gobblin_dagster.constructs.clients.http import HttpClient, HttpOptions, WrittenFloat
from gobblin_dagster.constructs.decoders.base import DecodeError, JsonDecoder, decode_batch
from gobblin_dagster.constructs.decoders.left_out import LeftOutFields
from gobblin_dagster.constructs.sources.incremental.in_order import InOrder
from gobblin_dagster.constructs.sources.rest.paging import NoPaging, Paging, read_pages
from gobblin_dagster.constructs.types.json_shapes import JSON, dump_exactly, marked
from gobblin_dagster.constructs.types.shapes import JsonShape
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ExtractError
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.spec.job import SpecModel

_MOST_NEW = 1_000
"""Pages in a row with new records only, beyond as many as came before them, after which a list counts as endless."""


class RestCursor(SpecModel):
    """The column that orders the records of an API, by time or by number; its values are the watermark."""

    column: str
    """One of `columns`, of type `timestamp` or `int64`; every record must have it."""
    low_param: str | None = None
    """Query parameter for the low bound, e.g. `since`; default: none, the server sends all records. What is
    sent lies before the first record that is wanted, by one for numbers, and records outside the interval are dropped
    here, so it does not matter whether the server's bound is inclusive."""
    high_param: str | None = None
    """Query parameter for the high bound, e.g. `until`; default: none. What is sent lies behind the last record."""
    param_format: Literal["iso", "unix", "unix_ms"] = "iso"
    """Form of instants in these parameters: ISO 8601 text, seconds or milliseconds since 1970."""
    newest_params: dict[str, str] | None = None
    """Query parameters that make the newest record come first, e.g. `{sort: desc, limit: "1"}`; used when planning, so
    that a run without new records has no work. Required if the column is `int64`. Default: each run asks for records up
    to now."""
    start: int | datetime | None = None
    """Where the first run begins (inclusive); default: 0, or 1970-01-01 UTC."""
    is_sorted: bool = False
    """Whether the server sends records in ascending order of the column. Then a part of a work unit can be published
    (`commit.policy: partial`, `execution.limit`), and a record out of order fails the work unit."""
    lag_s: float = Field(default=60.0, ge=0)
    """Seconds that an instant must be old before it is read, so that late records are not missed; for `timestamp`
    only."""


class RestReading(SpecModel):
    """How answers become rows; part of the options of the source `rest`."""

    records: str = ""
    """Path of the list in the answer, with dots: `data.items`; default: the answer itself is the list."""
    records_may_lack: bool = False
    """Whether an answer without anything at `records` has no records. Default: it fails the work unit, because a
    misspelt path would lose all records silently. A null there is always an empty list."""
    columns: Mapping[str, JsonShape] = Field(min_length=1)
    """Types by field name, e.g. `{id: int64, tags: [string], place: {city: string}}`: `[...]` is a list, `{...}` an
    object, and `json` any value, as text with its JSON. Other fields are dropped, and the run names them;
    missing ones become null. Objects and lists in a `string` column become JSON text."""
    paging: Paging = Field(default_factory=NoPaging)
    """How the list is divided into pages: `{type: none}`, `page`, `offset`, `cursor`, `link`, `next_url` or
    `after`."""
    cursor: RestCursor | None = None
    """How new records are found. Default: each run reads everything, and the watermark is the time of its plan."""
    key: tuple[str, ...] = ()
    """Columns that identify a record. If pages shift while they are read, a record seen twice in a work unit is kept
    once."""


class RestExtractor:
    """Read the list at `WorkUnit.read`: `{"path"}`; drop records outside the work unit's interval.

    Shape: `columns`; `Chunk.rows` is the number of the record in the work unit, in the order of the server.

    Source: gobblin-core `RestApiExtractor`. Differs: bounds are applied here too, whether or not the server applies
    them.
    """

    def __init__(self, unit: WorkUnit, http: HttpOptions, reading: RestReading, context: ConstructContext) -> None:
        self.bytes_read = 0
        self._unit = unit
        self._path = str(unit.read["path"])
        self._reading = reading
        # A `json` column is a text here: `_fitted` writes it, from values that are parsed already.
        self._decoder = JsonDecoder(
            {name: "string" if shape == JSON else shape for name, shape in reading.columns.items()}
        )
        self._left_out = LeftOutFields(reading.columns, "the records")
        self._seen: set[tuple[Any, ...]] = set()
        self.schema = pa.schema(list(self._decoder.type))
        self._in_order: InOrder | None = None
        if context.in_order and reading.cursor is not None and reading.cursor.is_sorted:
            self._in_order = InOrder(
                reading.cursor.column, _itself, lambda problem: self._error(f"{problem}.", None), context.limit_rows
            )
        self._client = HttpClient(http, unit.dataset_urn)

    def chunks(self) -> Iterator[Chunk]:
        return self._in_order.cut(self._read()) if self._in_order is not None else self._read()

    def position(self) -> Watermark | None:
        """Return the first position whose records were not handed out; None if records do not come in order."""
        reached = self._in_order.reached if self._in_order is not None else None
        return None if reached is None else type(self._unit.low).from_components({"": reached})

    def reading_notes(self) -> tuple[str, ...]:
        return self._left_out.notes()

    def _read(self) -> Iterator[Chunk]:
        reading, unit, count = self._reading, self._unit, 0
        before = behind = 0
        last_behind: Any = None
        params = bounds_as_params(reading.cursor, unit.low, unit.expected_high)
        pages = read_pages(
            self._client,
            unit.dataset_urn,
            self._path,
            params,
            reading.paging,
            reading.records,
            may_lack=reading.records_may_lack,
        )
        for records, size in pages:
            self.bytes_read += size
            batch = self._batch(records, count)
            rows = pa.array(np.arange(count + 1, count + 1 + len(records), dtype=np.int64))
            count += len(records)
            keep = self._wanted(batch, rows)
            if keep.true_count:
                yield Chunk(batch, self._path, rows).filter(keep)
            was_behind, last_behind = last_behind, self._last_behind(batch, last_behind)
            if was_behind is not None and last_behind is not None:
                return  # a sorted list that grows faster than it is read would have no end
            before, behind = (before, behind + 1) if self._is_new(batch) else (before + behind + 1, 0)
            if behind > before + _MOST_NEW:
                raise self._endless(behind)

    def close(self) -> None:
        self._client.close()

    def _batch(self, records: list[Any], before: int) -> pa.RecordBatch:
        texts = []
        for row, record in enumerate(records, start=before + 1):
            try:
                texts.append(self._json(record))
            except ValueError as error:
                raise self._error(f"the record holds {error}.", row) from error
            except RecursionError:
                raise self._error("the record has lists and objects nested too deep to be read.", row) from None
        try:
            rows = decode_batch(self._decoder, texts, null_where_bad=False)
        except DecodeError as error:
            row = before + 1 + (error.index or 0)
            raise self._error(f"the record {error.problem}.", row) from error
        if rows.null_count:
            raise self._error("the record is null.", before + 1 + pc.index(rows.is_null(), True).as_py())
        return pa.RecordBatch.from_arrays(rows.flatten(), schema=self.schema)

    def _json(self, record: Any) -> bytes:
        if isinstance(record, dict):
            self._left_out.add(record)
            shapes = self._reading.columns
            record = {name: _fitted(value, shapes[name]) for name, value in record.items() if name in shapes}
        return json.dumps(record).encode()

    def _wanted(self, batch: pa.RecordBatch, rows: pa.Array) -> pa.BooleanArray:
        """Return a mask of the records in the work unit's interval that were not seen before."""
        keep = pa.array(np.ones(batch.num_rows, dtype=bool))
        cursor = self._reading.cursor
        if cursor is not None:
            column = batch.column(cursor.column)
            if column.null_count:
                row = rows[pc.index(column.is_null(), True).as_py()].as_py()
                raise self._error(f"the record has no {cursor.column!r}, which orders the records.", row)
            low, high = (
                pa.scalar(mark.components()[""], column.type) for mark in (self._unit.low, self._unit.expected_high)
            )
            keep = pc.and_(pc.greater_equal(column, low), pc.less(column, high))
        if self._reading.key:
            is_new = []
            keys = zip(*(batch.column(name).to_pylist() for name in self._reading.key), strict=True)
            for at, (key, is_inside) in enumerate(zip(keys, keep.to_pylist(), strict=True)):
                if is_inside and all(part is None for part in key):
                    names = " or ".join(map(repr, self._reading.key))
                    raise self._error(f"the record has no {names}, which identifies it (`key`).", rows[at].as_py())
                is_new.append(is_inside and key not in self._seen)
                if is_inside:  # one outside may be an older state of the record, from a replica
                    self._seen.add(key)
            keep = pa.array(is_new, pa.bool_())
        return keep

    def _is_new(self, batch: pa.RecordBatch) -> bool:
        """Return True for a page whose records all came after the plan."""
        cursor, high = self._reading.cursor, self._unit.expected_high
        if cursor is None:
            return False
        column, end = batch.column(cursor.column), self._unit.read.get("end")
        mark: Any = type(high).position_from_json(end) if isinstance(end, int | str) else high.components()[""]
        return bool(pc.all(pc.greater_equal(column, pa.scalar(mark, column.type))).as_py())

    def _endless(self, count: int) -> ExtractError:
        problem = (
            f"the last {count:,} pages hold only records that came after the plan: the list grows as fast as it is "
            "read and has no end. Let the server end it (`cursor.high_param`), or send it in ascending order "
            "(`cursor.is_sorted: true`)."
        )
        return self._error(problem, None)

    def _last_behind(self, batch: pa.RecordBatch, before: Any) -> Any:
        """Return the last value of a page behind the interval of a sorted list; None for other pages.

        `before` is that of the page before: only if values grow from page to page is the list sorted as promised, and
        not one that begins with the newest record.
        """
        cursor = self._reading.cursor
        if cursor is None or not cursor.is_sorted or not batch.num_rows:
            return None
        values = batch.column(cursor.column)
        first, last = values[0].as_py(), values[-1].as_py()
        high: Any = self._unit.expected_high.components()[""]
        is_behind = first >= high if before is None else before <= first and before < last
        return last if is_behind and not pc.any(pc.less(values[1:], values[:-1])).as_py() else None

    def _error(self, problem: str, row: int | None) -> ExtractError:
        return ExtractError(dataset_urn=self._unit.dataset_urn, file=self._path, row=row, problem=problem)


def _fitted(value: Any, shape: JsonShape) -> Any:
    """Return a value as the decoder reads it exactly: nested values of text columns, and fractions, as texts."""
    match shape, value:
        case "json", _ if value is not None:
            return dump_exactly(_with_digits(value))
        case "string", dict() | list():
            return dump_exactly(_with_digits(value))
        case str(), WrittenFloat() if shape.startswith("decimal"):
            return value.text
        case [item], list():
            return [_fitted(one, item) for one in value]
        case dict(), dict():
            return {name: _fitted(one, shape[name]) for name, one in value.items() if name in shape}
    return value


def _with_digits(value: Any) -> Any:
    """Return a value in which each fraction is a text that `dump_exactly` writes with all its digits."""
    if isinstance(value, WrittenFloat):
        return marked(value.text)
    if isinstance(value, dict):
        return {name: _with_digits(one) for name, one in value.items()}
    return [_with_digits(one) for one in value] if isinstance(value, list) else value


def _itself(value: Any) -> Any:
    return value


def bounds_as_params(cursor: RestCursor | None, low: Watermark, high: Watermark) -> dict[str, str]:
    """Return the query parameters for the bounds.

    The low one lies before the interval and the high one behind it, so that a server sends the whole interval whether
    it counts a bound in or not.
    """
    if cursor is None:
        return {}
    first: Any = low.components()[""]
    before: Any = first - 1 if isinstance(first, int) else max(first, _FIRST_INSTANT) - datetime.resolution
    bounds: tuple[tuple[str | None, Any], ...] = (
        (cursor.low_param, before),
        (cursor.high_param, high.components()[""]),
    )
    return {
        name: _written(bound, cursor.param_format, is_high=name == cursor.high_param) for name, bound in bounds if name
    }


def _written(position: int | datetime, param_format: str, *, is_high: bool) -> str:
    """Return a bound as text: an instant is rounded to what the form can say, a low one down and a high one up.

    ISO texts have whole seconds, for servers that know no fractions, and for those that compare texts, to which `00Z`
    comes after `00.000001Z`.
    """
    if isinstance(position, int):
        return str(position)
    step = timedelta(milliseconds=1 if param_format == "unix_ms" else 1000)
    since_1970 = position - _EPOCH
    steps = -(-since_1970 // step) if is_high else since_1970 // step
    if param_format == "iso":
        return (_EPOCH + min(steps * step, _LAST_SECOND - _EPOCH)).isoformat().replace("+00:00", "Z")
    return str(steps)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_INSTANT = datetime.min.replace(tzinfo=UTC) + datetime.resolution
_LAST_SECOND = datetime.max.replace(tzinfo=UTC, microsecond=0)
