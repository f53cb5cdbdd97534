"""AvroDecoder: decode Avro messages of one schema, or of schemas in a registry, by the id that begins each message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from gobblin_dagster.constructs.clients.http import as_it_is
from gobblin_dagster.constructs.decoders.base import AvroDecoding, DecodeError
from gobblin_dagster.constructs.types.avro import TOO_DEEP, arrow_type_of_avro, uuids_as_texts
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import EnvironmentFaultError, GobblinDagsterError, TransientError, UsageError
from gobblin_dagster.core.secrets import variable
from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.core.utils.regular_file import read_regular_text

_REGISTRY_S = 30
_HEADER_BYTES = 5
_FAULTS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What fastavro raises for JSON that is no schema, beside an error of its own."""
_NO_SUCH_SCHEMA = 40403
"""Error code of registries for an unknown schema id; a 404 without it does not come from a registry."""


class AvroDecoder:
    """Decode Avro data into the columns of one reader schema; each message is resolved from the schema that wrote it.

    Source: gobblin-kafka-common `KafkaAvroExtractor` and `KafkaSchemaRegistry`. Differs: one reader schema per work
    unit.
    """

    def __init__(self, reader: Any, writer_of: Callable[[int], Any] | None) -> None:
        with optional_package("fastavro"):
            from fastavro import parse_schema, schemaless_reader  # noqa: PLC0415  # optional package
            from fastavro.schema import SchemaParseException  # noqa: PLC0415  # optional package

        named: dict[str, Any] = {}
        self._parse, self._read = parse_schema, schemaless_reader
        self._writer_of = writer_of
        self._writers: dict[int, Any] = {}
        try:
            self._reader = parse_schema(uuids_as_texts(reader), named)
            self.type = arrow_type_of_avro(self._reader, named)
        except (SchemaParseException, *_FAULTS) as error:
            raise UsageError(
                problem=f"The Avro schema cannot become columns: {_said(error)}.", hint="Correct it, or read bytes."
            ) from error

    @classmethod
    def open(cls, decoding: AvroDecoding, default_subject: str, context: ConstructContext) -> AvroDecoder:
        """Make the decoder that a job declares.

        Raises:
            UsageError: a schema is missing, or is no Avro schema.
            EnvironmentFaultError: the package fastavro, or the variable with the registry's password, is missing.
            TransientError: the registry does not answer.
        """
        with optional_package("fastavro"):
            import fastavro  # noqa: F401, PLC0415  # optional package
        registry = _registry(decoding, context)
        if decoding.schema_file is not None:
            reader = _read_json(Path(context.base_dir, decoding.schema_file))
        else:
            assert registry is not None  # noqa: S101  # the options require one of both
            reader = registry.newest(decoding.subject or default_subject)
        return cls(reader, registry.by_id if registry is not None else None)

    def decode(self, values: Sequence[bytes | None]) -> pa.Array:
        try:
            return pa.array([None if value is None else self._datum(value) for value in values], self.type)
        except (GobblinDagsterError, MemoryError):
            raise  # raised by the registry; no fault of the message
        except Exception as error:
            # For damaged bytes and schemas that do not resolve, the library raises all kinds of exceptions.
            raise DecodeError(f"is no Avro datum of its schema: {str(error)[:200] or type(error).__name__}") from error

    def _datum(self, value: bytes) -> Any:
        writer, data = self._reader, BytesIO(value)
        if self._writer_of is not None:
            if len(value) < _HEADER_BYTES or value[0] != 0:
                raise ValueError("it does not begin with a zero byte and a schema id")
            number = int.from_bytes(value[1:_HEADER_BYTES], "big")
            writer = self._writer(number)
            if writer is None:
                raise ValueError(f"the registry has no schema {number}, which it names")
            data.seek(_HEADER_BYTES)
        datum = self._read(data, writer, self._reader)
        if data.read(1):
            raise ValueError("bytes are left after it")
        return datum

    def _writer(self, number: int) -> Any:
        """Return the schema of an id; None if the registry has none, because the message is not in its format."""
        if number not in self._writers:
            assert self._writer_of is not None  # noqa: S101  # called only for messages with ids
            schema = self._writer_of(number)
            self._writers[number] = None if schema is None else self._parsed(schema, number)
        return self._writers[number]

    def _parsed(self, schema: Any, number: int) -> Any:
        with optional_package("fastavro"):
            from fastavro.schema import SchemaParseException  # noqa: PLC0415  # optional package

        try:
            return self._parse(uuids_as_texts(schema))
        except (SchemaParseException, *_FAULTS) as error:
            # The messages are not to blame: with `on_undecodable: null`, all messages of this schema would become null.
            raise UsageError(
                problem=f"Schema {number} of the registry cannot be used: {_said(error)}.",
                hint="Schemas that refer to types of other subjects are not supported; read bytes.",
            ) from error


def _said(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"a type in it lacks {error}"
    if isinstance(error, TypeError | IndexError | AttributeError):
        return f"it is none ({error})"
    return TOO_DEEP if isinstance(error, RecursionError) else str(error)


class _FolderRegistry:
    """Schemas in files: `<id>.avsc` and `<subject>.avsc`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def by_id(self, number: int) -> Any:
        file = self._folder / f"{number}.avsc"
        return _read_json(file) if file.exists() or not self._folder.is_dir() else None

    def newest(self, subject: str) -> Any:
        return _read_json(self._folder / f"{quote(subject, safe='')}.avsc")


class _HttpRegistry:
    """A schema registry over HTTP."""

    def __init__(self, url: str, auth: tuple[str, str] | None) -> None:
        import requests  # noqa: PLC0415  # needed for registries only

        self._url = url.rstrip("/")
        self._requests = requests
        self._auth = auth

    def by_id(self, number: int) -> Any:
        return self._schema(f"/schemas/ids/{number}", absent=_NO_SUCH_SCHEMA)

    def newest(self, subject: str) -> Any:
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/latest")

    def _schema(self, path: str, absent: int | None = None) -> Any:
        """Return the schema at a path; None if the registry answers with the error code `absent`."""
        try:
            # A redirect could lead to a server that the project does not allow.
            answer = self._requests.get(
                self._url + path, auth=self._auth or as_it_is, timeout=_REGISTRY_S, allow_redirects=False
            )
        except self._requests.RequestException as error:
            raise TransientError(
                problem=f"The schema registry {self._url} does not answer: {type(error).__name__}."
            ) from error
        if answer.status_code >= 500 or answer.status_code == 429:
            raise TransientError(problem=f"The schema registry {self._url}{path} answers {answer.status_code}.")
        if answer.status_code == 404 and absent is not None and _error_code(answer) == absent:
            return None
        if answer.status_code != 200:
            redirects = ", a redirect; put the new address into `registry`" if answer.is_redirect else ""
            raise UsageError(problem=f"The schema registry {self._url}{path} answers {answer.status_code}{redirects}.")
        try:
            body = parse_json(answer.content)
            kind = body.get("schemaType", "AVRO")
            schema = parse_json(body["schema"]) if kind == "AVRO" else None  # Protobuf's is no JSON
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # A page of a proxy, for example. No message is to blame: with `on_undecodable: null`, all would be null.
            raise UsageError(
                problem=f"{self._url}{path} answers no schema ({type(error).__name__}).",
                hint="Check what answers there: it is no schema registry, or its answer was changed on the way.",
            ) from error
        if kind != "AVRO":
            raise UsageError(problem=f"{self._url}{path} is a schema of {kind}, not of Avro.")
        return schema


def _error_code(answer: Any) -> Any:
    """Return the error code in a registry's answer; None if the answer does not come from a registry."""
    try:
        body = answer.json()
    except ValueError:
        return None
    return body.get("error_code") if isinstance(body, dict) else None


def _registry(decoding: AvroDecoding, context: ConstructContext) -> _HttpRegistry | _FolderRegistry | None:
    if decoding.registry is None:
        return None
    if "://" not in decoding.registry:
        return _FolderRegistry(Path(context.base_dir, decoding.registry))
    if decoding.registry_auth_env is None:
        return _HttpRegistry(decoding.registry, None)
    user, separator, password = (variable(decoding.registry_auth_env) or "").partition(":")
    if not separator:
        raise EnvironmentFaultError(
            problem=f"The schema registry's `user:password` is not in {decoding.registry_auth_env}.",
            hint="Set it where the work runs: here, and on every Spark worker.",
        )
    return _HttpRegistry(decoding.registry, (user, password))


def _read_json(path: Path) -> Any:
    try:
        return parse_json(read_regular_text(path))
    except (OSError, ValueError) as error:
        raise UsageError(problem=f"The Avro schema {path} cannot be read: {error}.") from error
