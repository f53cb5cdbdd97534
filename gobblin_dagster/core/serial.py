"""JSON in and out for the values of `core`, checked against their types by pydantic.

Every stored document carries `format`, e.g. `DatasetState/1`, so that a reader of an older or newer program can tell.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeAlias, TypeVar

import pydantic_core
from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

import gobblin_dagster.core.file_set  # registers its watermark types, which a stored value may be of
import gobblin_dagster.core.table_snapshot  # noqa: F401  # as above
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.ranges import CommittedRanges
from gobblin_dagster.core.watermark import Watermark, watermark_from_json

FORMAT_VERSION = 1
T = TypeVar("T")


def _load_watermark(raw: Any) -> Watermark:
    return raw if isinstance(raw, Watermark) else watermark_from_json(raw)


def _load_ranges(raw: Any) -> CommittedRanges:
    return raw if isinstance(raw, CommittedRanges) else CommittedRanges.from_json(raw)


AnyWatermark: TypeAlias = Annotated[
    Watermark, PlainValidator(_load_watermark), PlainSerializer(lambda mark: mark.to_json(), return_type=dict)
]
"""A watermark field of a stored value, of whatever registered type."""

AnyRanges: TypeAlias = Annotated[
    CommittedRanges, PlainValidator(_load_ranges), PlainSerializer(lambda ranges: ranges.to_json(), return_type=dict)
]


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(cls: type[Any]) -> TypeAdapter[Any]:
    adapter = _ADAPTERS.get(cls)
    if adapter is None:
        adapter = _ADAPTERS[cls] = TypeAdapter(cls)
    return adapter


def _format(cls: type[Any]) -> str:
    return f"{cls.__name__}/{FORMAT_VERSION}"


def to_document(value: Any) -> dict[str, Any]:
    """Return a value of `core` as a JSON-ready dict with its format."""
    body: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json")
    return {"format": _format(type(value)), **body}


def to_json(value: Any) -> str:
    """Return a value of `core` as canonical JSON: keys sorted, no spaces, UTF-8 kept."""
    return json.dumps(to_document(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def from_document(cls: type[T], document: Any) -> T:
    """Read what `to_document` wrote.

    Raises:
        CorruptRecordError: another format, a newer version, or fields that do not fit.
    """
    what = f"A stored {cls.__name__}"
    if not isinstance(document, dict) or document.get("format") != _format(cls):
        raise CorruptRecordError(what=what, problem=f"expected format {_format(cls)!r}, got {str(document)[:80]!r}")
    body = {key: value for key, value in document.items() if key != "format"}
    try:
        loaded: T = _adapter(cls).validate_python(body)
    except ValidationError as error:
        raise CorruptRecordError(what=what, problem=_first_faults(error)) from error
    return loaded


def from_json(cls: type[T], text: str) -> T:
    """Read what `to_json` wrote; raises as `from_document`."""
    try:
        document = pydantic_core.from_json(text, cache_strings="keys")  # half the time of `json.loads`
    except ValueError as error:
        raise CorruptRecordError(what=f"A stored {cls.__name__}", problem=f"not JSON: {error}") from error
    return from_document(cls, document)


def _first_faults(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
