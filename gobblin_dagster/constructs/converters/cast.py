"""Cast a column to a declared type, strictly."""

from __future__ import annotations

from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import model_validator

from gobblin_dagster.constructs.options.zones import ZoneName
from gobblin_dagster.constructs.sql.literal import sql_text
from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.constructs.types.arrow import TypeName, arrow_type, decoded, exact_cast, is_text
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.constructs.types.zones import instants, wall_times
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel

_HAS_OFFSET = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
HAS_DIGIT = "regexp_matches(text, '[0-9]')"
"""SQL that is false for `infinity` and `epoch`, which DuckDB accepts as times in every format."""
ISO = "iso"
ISO_FORM = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d|$)"
"""Regular expression for the beginning of a text in ISO 8601."""


class ColumnType(SpecModel):
    """Declared type of a column, and how text is converted to it."""

    type: TypeName
    """`int8` to `int64`, `float32`, `float64`, `string`, `bool` (true, false, 1, 0), `date` (for a timestamp: its day),
    `timestamp` (microseconds), `decimal(precision,scale)` (precision up to 38) or `binary`."""
    nulls: tuple[str, ...] | None = None
    """Texts that mean null. Default: the empty text; none for `string` and `binary`."""
    format: str = ISO
    """Format of dates and timestamps: `iso` or a strptime format, e.g. `%d.%m.%Y %H:%M` (`%z` for an offset, `%f` for
    fractions of a second)."""
    timezone: ZoneName | None = "UTC"
    """Zone of the resulting timestamp, and of texts without an offset. Null: no zone; texts with an offset are
    refused."""

    @model_validator(mode="after")
    def _format_fits(self) -> Self:
        if self.format != ISO and self.type not in ("date", "timestamp"):
            raise ValueError(f"a format is for date and timestamp; the type is {self.type}")
        return self

    @property
    def arrow(self) -> pa.DataType:
        """Arrow type."""
        if self.type == "timestamp":
            return pa.timestamp("us", self.timezone)
        return arrow_type(self.type)


class Cast:
    """Cast arrays to one declared type.

    `run` raises ArrowInvalid, ArrowNotImplementedError or ConvertError if a value does not fit.
    """

    def __init__(self, declared: ColumnType, construct: str, context: ConstructContext) -> None:
        self._declared = declared
        self._target = declared.arrow
        self._is_time = declared.type in ("date", "timestamp")
        default = () if declared.type in ("string", "binary") else ("",)
        self._nulls = default if declared.nulls is None else declared.nulls
        # Not Arrow's strptime, which reads the 31st of February as a day in March.
        self._parse = (
            None
            if declared.format == ISO
            else SqlSelect(
                f"CASE WHEN text IS NULL OR {HAS_DIGIT} THEN strptime(text, {sql_text(declared.format)}) "
                f"ELSE error('no time') END AS time",
                construct,
                context,
            )
        )

    def problem(self, source: pa.DataType) -> str | None:
        """Return why a source type cannot be cast, None if it can; reads no row.

        Raises ConvertError for a bad format.
        """
        if self._parse is not None:
            self._parse.schema(pa.schema([("text", pa.string())]))
        fits = is_text(source) or pa.types.is_temporal(source) or pa.types.is_null(source)
        if self._is_time and not fits:
            return f"is {source}; a {self._declared.type} comes from text or time (compute it with a `sql` converter)"
        try:
            self.run(pa.nulls(0, source))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return f"is {source}, which cannot become {self._declared.type}"
        return None

    def run(self, values: pa.Array) -> pa.Array:
        """Return the values in the declared type; null for null and for the texts that mean null."""
        values = decoded(values)
        if is_text(values.type):
            values = self._without_nulls(values.cast(pa.string()))
            if self._is_time:
                values = self._time(values)
        if self._declared.type == "timestamp":
            return in_zone(values, self._declared.timezone)
        return strict_cast(values, self._target)

    def _without_nulls(self, texts: pa.Array) -> pa.Array:
        if not self._nulls:
            return texts
        is_null = pc.is_in(texts, value_set=pa.array(self._nulls, pa.string()))
        return pc.if_else(is_null, pa.scalar(None, pa.string()), texts) if is_null.true_count else texts

    def _time(self, texts: pa.Array) -> pa.Array:
        if self._parse is not None:
            return self._parse.run(pa.RecordBatch.from_arrays([texts], names=["text"])).column(0)
        if self._declared.type == "date":
            return texts.cast(pa.date32())
        zone = self._declared.timezone
        return texts.cast(pa.timestamp("us")) if zone is None else read_iso(texts, zone)


def read_iso(texts: pa.Array, zone: str) -> pa.Array:
    """Parse ISO 8601 with or without offsets; texts without one are in `zone`."""
    target = pa.timestamp("us", zone)
    try:
        return exact_cast(texts, target)
    except pa.ArrowInvalid:
        has_offset = pc.match_substring_regex(texts, _HAS_OFFSET)
    nothing = pa.scalar(None, pa.string())
    aware = exact_cast(pc.if_else(has_offset, texts, nothing), target)
    naive = pc.if_else(has_offset, nothing, texts).cast(pa.timestamp("us"))
    return pc.coalesce(aware, instants(naive, zone))


def in_zone(times: pa.Array, zone: str | None) -> pa.Array:
    """Return timestamps in a zone: the same instants; for timestamps without a zone, the same wall clock time."""
    is_aware = pa.types.is_timestamp(times.type) and times.type.tz is not None
    if zone is None:
        return (wall_times(times) if is_aware else times).cast(pa.timestamp("us"))
    if is_aware:
        return times.cast(pa.timestamp("us", zone))
    return instants(times.cast(pa.timestamp("us")), zone)
