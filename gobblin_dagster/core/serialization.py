"""Write the values of `core` as JSON documents and read them again, checked against their types by pydantic.

Every document holds the `format_name` of its class, e.g. `DatasetState/1`, so that older and newer programs recognise
it. A class may be renamed or moved; its `format_name` stays. Raise the number if older programs would misread newer
documents.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, ClassVar, Protocol, TypeVar

import pydantic_core
from pydantic import TypeAdapter, ValidationError

import gobblin_dagster.core.watermark.file_set  # registers its watermark types, which a stored value may have
import gobblin_dagster.core.watermark.table_snapshot  # noqa: F401  # as above
from gobblin_dagster.core.errors import CorruptRecordError


class Document(Protocol):
    """A dataclass whose values become JSON documents."""

    format_name: ClassVar[str]
    """Name and version of the documents."""


D = TypeVar("D", bound=Document)


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(cls: type[Any]) -> TypeAdapter[Any]:
    adapter = _ADAPTERS.get(cls)
    if adapter is None:
        try:
            adapter = _ADAPTERS[cls] = TypeAdapter(cls)
        except pydantic_core.SchemaError as error:
            # pydantic makes an error of its own of what the handler of a signal raises meanwhile.
            if KeyboardInterrupt.__name__ in str(error):
                raise KeyboardInterrupt from error
            raise
    return adapter


def to_document(value: Document) -> dict[str, Any]:
    """Return a value of `core` as a JSON-ready dict with its format."""
    body: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json")
    return {"format": value.format_name, **body}


def to_json(value: Document) -> str:
    """Return a value of `core` as canonical JSON: keys sorted, no spaces, UTF-8 kept."""
    return json.dumps(to_document(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def from_document(cls: type[D], document: Any, *, older_formats: Collection[str] = ()) -> D:
    """Read what `to_document` wrote.

    Args:
        cls: the class of the value.
        document: the document, as parsed JSON.
        older_formats: names of older formats to accept too; keys that the class does not have are ignored.

    Raises:
        CorruptRecordError: the format is another one or a newer version, or fields do not fit the class.
    """
    what, expected = _kind(cls), cls.format_name
    if not isinstance(document, dict) or document.get("format") not in {expected, *older_formats}:
        raise CorruptRecordError(what=what, problem=f"expected format {expected!r}, got {str(document)[:80]!r}")
    body = {key: value for key, value in document.items() if key != "format"}
    try:
        loaded: D = _adapter(cls).validate_python(body)
    except ValidationError as error:
        raise CorruptRecordError(what=what, problem=_first_faults(error)) from error
    return loaded


def from_json(cls: type[D], text: str, *, older_formats: Collection[str] = ()) -> D:
    """Read what `to_json` wrote; raises like `from_document`."""
    try:
        document = pydantic_core.from_json(text, cache_strings="keys")  # half the time of `json.loads`
    except ValueError as error:
        raise CorruptRecordError(what=_kind(cls), problem=f"not JSON: {error}") from error
    return from_document(cls, document, older_formats=older_formats)


def _kind(cls: type[Document]) -> str:
    return f"A stored {cls.format_name.partition('/')[0]}"


def _first_faults(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
