"""JsonDocumentFormat: read files that are one JSON document each, a list of objects or one that holds such a list."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from gobblin_dagster.constructs.formats.json_blocks import Split
from gobblin_dagster.constructs.formats.json_records import records
from gobblin_dagster.constructs.formats.jsonl import JsonLinesFormat, JsonLinesOptions


class JsonDocumentOptions(JsonLinesOptions):
    """Options of the format `json`."""

    records: str = Field(default="", pattern=r"^(\.|[^.]+(\.[^.]+)*)?$")
    """Path of the list in the document, with dots: `data.items`; `.` if the document is one record. Default: the
    document itself is the list."""


class JsonDocumentFormat(JsonLinesFormat):
    """Reads JSON documents; types, errors and options are those of JSON lines, and `row` counts the records.

    A file is read record by record, so its size does not matter.
    """

    Options = JsonDocumentOptions

    @property
    def _split(self) -> Split:
        options = self._options
        return partial(records, path=options.records if isinstance(options, JsonDocumentOptions) else "")
