"""RestSource: read lists of an HTTP API as JSON; one dataset per list, new records by a cursor column."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa
from pydantic import Field, JsonValue, model_validator

from gobblin_dagster.constructs.clients.http import HttpClient, HttpOptions
from gobblin_dagster.constructs.decoders.base import DecodeError, JsonDecoder
from gobblin_dagster.constructs.sources.incremental.options import held_back
from gobblin_dagster.constructs.sources.incremental.watermark_column import column_origin, column_problem
from gobblin_dagster.constructs.sources.rest.extractor import RestCursor, RestExtractor, RestReading
from gobblin_dagster.constructs.sources.rest.paging import NoPaging, contents, read_pages
from gobblin_dagster.constructs.sources.startpoints import position_before
from gobblin_dagster.constructs.sources.work_units import open_units, require_replacement, state_problem
from gobblin_dagster.constructs.types.shapes import json_type
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, Extractor, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import ExtractError, GobblinDagsterError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.watermark import LongWatermark, TimestampWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit

_KINDS: dict[str, type[Watermark]] = {"timestamp": TimestampWatermark, "int64": LongWatermark}


class RestOptions(HttpOptions, RestReading):
    """Options of the source `rest`."""

    datasets: dict[str, str] = Field(min_length=1)
    """Path below `url` of each dataset, by dataset.urn, e.g. `{issues: /issues}`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        missing = sorted({*self.key, *([self.cursor.column] if self.cursor else [])} - set(self.columns))
        if missing:
            raise ValueError(f"`cursor` and `key` name {', '.join(missing)}, which is not in `columns`")
        if nested := [name for name in self.key if not isinstance(self.columns[name], str)]:
            raise ValueError(f"`key` names {', '.join(nested)}, a list or object; expected columns of plain values")
        if self.cursor is None:
            return self
        kind = self.columns[self.cursor.column]
        if not isinstance(kind, str) or kind not in _KINDS:
            raise ValueError(f"the cursor column {self.cursor.column!r} must be timestamp or int64, not {kind}")
        if kind == "int64" and self.cursor.newest_params is None:
            raise ValueError("an int64 cursor needs `newest_params`, to know where the list ends when planning")
        start = self.cursor.start
        if start is not None and isinstance(start, datetime) != (kind == "timestamp"):
            raise ValueError(f"`cursor.start` must fit the type {kind} of its column")
        if isinstance(start, datetime) and start.tzinfo is None:
            raise ValueError("`cursor.start` needs a time zone, e.g. 2026-01-01T00:00:00Z")
        return self

    @property
    def watermark_type(self) -> type[Watermark]:
        """Class of the datasets' watermarks."""
        return _KINDS[str(self.columns[self.cursor.column])] if self.cursor else TimestampWatermark


class RestSource:
    """Plan the interval of cursor values that is not committed; one work unit reads it.

    With a cursor, each record belongs to exactly one interval, by its value: bounds are applied here, even if the
    server counts them differently. A record that changes gets a new value and is read again. A record that appears
    later than `lag_s`, with a committed value, is not read. The audit does not count rows again, because an API's lists
    change.

    Source: gobblin-core `RestApiSource` with `RestApiExtractor`. Differs: bounds are half-open and applied here too.
    """

    full_extract = "start_over"

    Options = RestOptions

    @property
    def holds_back(self) -> str:
        """Why records that exist may not be read."""
        return held_back(self._options.cursor.column) if self._options.cursor else ""

    def __init__(self, options: RestOptions, context: ConstructContext) -> None:
        self._options = options
        self._context = context

    def check_extract(self, extract: Extract) -> None:
        if self._options.cursor is None:
            require_replacement(self._context.job, "cursor", extract)

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        self.check_extract(context.extract)
        for urn in self._options.datasets:
            if context.is_selected(urn):
                try:
                    yield self._offer(urn, context.states.get(urn), context.clock.now())
                except GobblinDagsterError as error:
                    yield DatasetOffer(urn, None, None, problem=str(error))

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | None:
        is_listed = dataset_urn in self._options.datasets
        end = self._end(dataset_urn, context.clock.now()) if is_listed else None
        return position_before(end, dataset_urn, position)

    def extractor(self, unit: WorkUnit) -> Extractor:
        return RestExtractor(unit, self._options, self._options, self._context)

    def declared_schema(self) -> pa.Schema:
        """Return the columns of `columns`."""
        return pa.schema([(name, json_type(shape)) for name, shape in self._options.columns.items()])

    def tells_positions(self) -> bool:
        """Return True for a sorted list: only then is the position behind a record known."""
        return self._options.cursor is not None and self._options.cursor.is_sorted

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> None:
        """Return None: the lists of an API change."""

    def _offer(self, urn: str, state: DatasetState | None, now: datetime) -> DatasetOffer:
        kind = self._options.watermark_type
        problem = state_problem(state, kind, "rest")
        origin = column_origin(self._options.cursor.column if self._options.cursor else "")
        problem = problem or column_problem(state, origin)
        if problem:
            return DatasetOffer(urn, None, None, problem=problem)
        end = self._end(urn, now)
        start = self._start()
        read: dict[str, JsonValue] = {"path": self._options.datasets[urn]}
        if end is not None:
            read["end"] = kind.position_to_json(end.components()[""])
        units = open_units(urn, state, start, end, read=read)
        mark = state.watermark if state is not None else None
        if not units:
            return DatasetOffer(urn, mark, mark, origin=origin)
        return DatasetOffer(urn, mark or start, units[-1].expected_high, units, origin=origin)

    def _start(self) -> Watermark:
        start: Any = self._options.cursor.start if self._options.cursor else None
        default: Any = 0 if self._options.watermark_type is LongWatermark else datetime(1970, 1, 1, tzinfo=UTC)
        return self._options.watermark_type.from_components({"": default if start is None else start})

    def _end(self, urn: str, now: datetime) -> Watermark | None:
        """Return the end (exclusive) of what there is to read; None if the list is empty."""
        cursor = self._options.cursor
        if cursor is None:
            return TimestampWatermark(now)
        newest = self._newest(urn, cursor) if cursor.newest_params is not None else now
        if newest is None:
            return None
        if isinstance(newest, datetime):
            # One microsecond after the newest instant, because the high bound is exclusive; 9999-12-31 has none after.
            last = min(newest, now - timedelta(seconds=cursor.lag_s) - datetime.resolution)
            return TimestampWatermark(last + datetime.resolution)
        return LongWatermark(newest + 1)

    def _newest(self, urn: str, cursor: RestCursor) -> Any:
        """Return the newest value of the cursor column, from the server; None if there is no record.

        Raises:
            ExtractError: records have no such value, or the newest comes last: what other pages hold is not known then,
                and a run would find nothing to read for ever.
        """
        options, path = self._options, self._options.datasets[urn]
        client = HttpClient(options, urn)
        try:
            params, may_lack = cursor.newest_params or {}, options.records_may_lack
            pages = read_pages(client, urn, path, params, NoPaging(), options.records, may_lack=may_lack)
            records = [record for page, _ in pages for record in page]
            found = [value for value in self._cursor_values(records, cursor.column) if value is not None]
        except DecodeError as error:
            problem = f"the newest record's {cursor.column!r} cannot be read: {error}."
            raise ExtractError(dataset_urn=urn, file=path, problem=problem) from error
        finally:
            client.close()
        if not found:
            if records:
                problem = (
                    f"expected {cursor.column!r} in the newest record, got nothing; it has {contents(records[0])}. "
                    "Correct `cursor.column`, or let `cursor.newest_params` leave out records without it."
                )
                raise ExtractError(dataset_urn=urn, file=path, problem=problem)
            return None
        newest = max(found)
        if found[0] != newest == found[-1] and not isinstance(options.paging, NoPaging):
            problem = (
                f"expected the newest record first, got {found[0]} before {newest}. Correct `cursor.newest_params`, "
                "e.g. the order of sorting."
            )
            raise ExtractError(dataset_urn=urn, file=path, problem=problem)
        return newest

    def _cursor_values(self, records: list[Any], column: str) -> list[Any]:
        """Return the cursor's value of each record, null where there is none; raises DecodeError."""
        decoder = JsonDecoder({"at": self._options.columns[column]})
        values = [record.get(column) if isinstance(record, dict) else None for record in records]
        texts = [json.dumps({"at": value}).encode() for value in values]
        return [row["at"] for row in decoder.decode(texts).to_pylist()]
