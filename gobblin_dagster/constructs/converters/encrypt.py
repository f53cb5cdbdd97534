"""Converters that encrypt and decrypt single fields."""

from __future__ import annotations

import base64
import binascii
import os
from abc import abstractmethod
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.converters.each_row import ColumnsOnce, EachRowConverter, replaced, retyped
from gobblin_dagster.constructs.converters.keys import EnvName, aes_key
from gobblin_dagster.constructs.types.arrow import is_binary, is_text
from gobblin_dagster.constructs.types.columns import convert_error, require_columns
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.spec.job import SpecModel

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = b"\x01"
_NONCE_BYTES = 12


class FieldOptions(SpecModel):
    """Options of `type: encrypt` and `type: decrypt`."""

    columns: ColumnsOnce = Field(min_length=1)
    """Text or binary columns; null stays null."""
    key_env: EnvName
    """Environment variable with the key: base64 of 16, 24 or 32 bytes. The key itself is never in the job file."""


class _FieldConverter(EachRowConverter):
    """Base of both directions."""

    packages = ("cryptography",)
    Options = FieldOptions
    _name = ""

    def __init__(self, options: FieldOptions, context: ConstructContext) -> None:
        self._columns = options.columns
        self._context = context
        self._cipher = _aes_gcm(aes_key(options.key_env, self._name))

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        require_columns(self._columns, schema, self._name, self._context)
        for name in self._columns:
            kind = schema.field(name).type
            if not (is_text(kind) or is_binary(kind)):
                problem = f"column {name!r}: expected text or binary, got {kind}; cast it with `columns` first"
                raise convert_error(problem, self._name, self._context)
        return retyped(schema, {name: _plain(schema.field(name).type) for name in self._columns})

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        given = {name: batch.column(name) for name in self._columns}
        return replaced(
            batch,
            {
                name: pa.array(self._converted(name, values.to_pylist()), _plain(values.type))
                for name, values in given.items()
            },
        )

    @abstractmethod
    def _converted(self, name: str, values: list[str | bytes | None]) -> list[str | bytes | None]:
        """Return the values encrypted or decrypted."""


class EncryptConverter(_FieldConverter):
    """Encrypt fields with AES-GCM: text becomes base64 text, bytes become bytes.

    Each value has a random nonce, so equal values look different; use one key for at most 2^32 values. A value is
    `version (1) | nonce (12) | ciphertext | tag (16)`.

    Shape: all columns in their order, as many rows; encrypted text columns are `string`, binary ones `binary`.

    Source: gobblin-crypto-provider `StringFieldEncryptorConverter`. Differs: AES-GCM, which detects changed values.
    """

    _name = "converter 'encrypt'"

    def _converted(self, name: str, values: list[str | bytes | None]) -> list[str | bytes | None]:
        nonces = os.urandom(_NONCE_BYTES * len(values))
        return [
            None if value is None else self._encrypted(value, nonces[at * _NONCE_BYTES : (at + 1) * _NONCE_BYTES])
            for at, value in enumerate(values)
        ]

    def _encrypted(self, value: str | bytes, nonce: bytes) -> str | bytes:
        plain = value.encode() if isinstance(value, str) else value
        sealed = _VERSION + nonce + self._cipher.encrypt(nonce, plain, None)
        return base64.b64encode(sealed).decode() if isinstance(value, str) else sealed


class DecryptConverter(_FieldConverter):
    """Decrypt values of `encrypt` with the same key; raise ConvertError for one that was changed or never encrypted.

    Shape: as `EncryptConverter`.

    Source: gobblin-crypto-provider `StringFieldDecryptorConverter`.
    """

    _name = "converter 'decrypt'"

    def _converted(self, name: str, values: list[str | bytes | None]) -> list[str | bytes | None]:
        return [None if value is None else self._decrypted(name, value) for value in values]

    def _decrypted(self, name: str, value: str | bytes) -> str | bytes:
        with optional_package("cryptography"):
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415  # optional package

        try:
            sealed = base64.b64decode(value, validate=True) if isinstance(value, str) else value
            if sealed[:1] != _VERSION:
                raise InvalidTag
            plain = self._cipher.decrypt(sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :], None)
            return plain.decode() if isinstance(value, str) else plain
        except (InvalidTag, ValueError, binascii.Error) as error:
            problem = f"column {name!r}: expected a value encrypted with this key, got one of {len(value)} characters"
            raise convert_error(f"{problem} that is not, or was changed", self._name, self._context) from error


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if is_text(kind) else pa.binary()


def _aes_gcm(key: bytes) -> AESGCM:
    with optional_package("cryptography"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # optional package
    return AESGCM(key)
