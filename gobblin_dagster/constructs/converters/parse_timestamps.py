"""ParseTimestampsConverter: convert texts in one of several formats, or epoch numbers, to timestamps."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from gobblin_dagster.constructs.converters.cast import HAS_DIGIT, ISO, ISO_FORM, in_zone, read_iso
from gobblin_dagster.constructs.converters.each_row import EachRowConverter, replaced, retyped
from gobblin_dagster.constructs.options.zones import ZoneName
from gobblin_dagster.constructs.sql.literal import sql_text
from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.constructs.types.arrow import is_text
from gobblin_dagster.constructs.types.columns import convert_error, require_columns
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.utils.text import shown
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'parse_timestamps'"
_US_PER = {"s": 1_000_000, "ms": 1_000, "us": 1}


class TimestampForm(SpecModel):
    """How the values of a column become timestamps."""

    formats: tuple[str, ...] = Field(default=(ISO,), min_length=1)
    """Formats of texts, tried in this order for each row: `iso`, or strptime formats, e.g. `%d.%m.%Y %H:%M`."""
    unit: Literal["s", "ms", "us"] = "ms"
    """Unit of numbers, counted from 1970-01-01T00:00Z."""
    timezone: ZoneName = "UTC"
    """Zone of the result, and of texts without an offset."""
    nulls: tuple[str, ...] = ("",)
    """Texts that mean null."""


class ParseTimestampsConverter(EachRowConverter):
    """Convert texts and integers to timestamps (microseconds, with zone); a text in no format is an error.

    Shape: all columns in their order, as many rows; converted columns are `timestamp[us, <zone>]`, null for null.

    Source: gobblin-core `JsonElementConversionFactory.DateConverter` (`converter.avro.date.format`, `.timezone`).
    """

    class Options(SpecModel):
        """Options of `type: parse_timestamps`."""

        columns: dict[str, TimestampForm] = Field(min_length=1)
        """Form by column name; a format, or a list of them, is short for `{formats: [...]}`."""

        @field_validator("columns", mode="before")
        @classmethod
        def _short_form(cls, columns: object) -> object:
            if not isinstance(columns, dict):
                return columns
            short = {name: [form] if isinstance(form, str) else form for name, form in columns.items()}
            return {name: {"formats": form} if isinstance(form, list) else form for name, form in short.items()}

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._forms = options.columns
        self._context = context
        self._parsers = {
            text: SqlSelect(
                f"CASE WHEN {HAS_DIGIT} THEN try_strptime(text, {sql_text(text)}) END AS time", _NAME, context
            )
            for form in options.columns.values()
            for text in form.formats
            if text != ISO
        }

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        require_columns(self._forms, schema, _NAME, self._context)
        for parser in self._parsers.values():
            parser.schema(pa.schema([("text", pa.string())]))
        for name in self._forms:
            kind = schema.field(name).type
            if not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
                raise convert_error(f"column {name!r}: expected text or an integer, got {kind}", _NAME, self._context)
        return retyped(schema, {name: pa.timestamp("us", form.timezone) for name, form in self._forms.items()})

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        times = {name: self._times(name, form, batch.column(name)) for name, form in self._forms.items()}
        return replaced(batch, times)

    def _times(self, name: str, form: TimestampForm, values: pa.Array) -> pa.Array:
        if pa.types.is_integer(values.type):
            return self._counted(name, form, values)
        if not is_text(values.type):
            try:
                return in_zone(values, form.timezone)
            except pa.ArrowInvalid as error:
                raise convert_error(f"column {name!r}: {error}", _NAME, self._context) from error
        texts = values.cast(pa.string())
        texts = pc.if_else(
            pc.is_in(texts, value_set=pa.array(form.nulls, pa.string())), pa.scalar(None, pa.string()), texts
        )
        times = pa.nulls(len(texts), pa.timestamp("us", form.timezone))
        for text in form.formats:
            if times.null_count == texts.null_count:
                break
            rest = pc.if_else(pc.is_null(times), texts, pa.scalar(None, pa.string()))
            times = pc.coalesce(times, self._read(text, rest, form.timezone))
        if times.null_count > texts.null_count:
            value = texts.filter(pc.and_(pc.is_null(times), pc.is_valid(texts)))[0].as_py()
            problem = f"column {name!r}: expected a time as {' or '.join(form.formats)}, got {shown(value)}"
            raise convert_error(problem, _NAME, self._context)
        return times

    def _read(self, form: str, texts: pa.Array, zone: str) -> pa.Array:
        """Return times; null for each text that is not in this format."""
        if form != ISO:
            return in_zone(self._parsers[form].run(pa.RecordBatch.from_arrays([texts], names=["text"])).column(0), zone)
        looks_iso = pc.fill_null(pc.match_substring_regex(texts, ISO_FORM), False)
        try:
            return read_iso(pc.if_else(looks_iso, texts, pa.scalar(None, pa.string())), zone)
        except pa.ArrowInvalid as error:
            raise convert_error(str(error), _NAME, self._context) from error

    def _counted(self, name: str, form: TimestampForm, values: pa.Array) -> pa.Array:
        try:
            micros = pc.multiply_checked(values.cast(pa.int64()), _US_PER[form.unit])
        except pa.ArrowInvalid as error:
            problem = f"column {name!r}: expected {form.unit} since 1970, got a number too large"
            raise convert_error(problem, _NAME, self._context) from error
        return micros.cast(pa.timestamp("us", form.timezone))
