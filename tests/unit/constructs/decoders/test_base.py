from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.decoders.avro import AvroDecoder
from gobblin_dagster.constructs.decoders.base import (
    AvroDecoding,
    BytesDecoder,
    DecodeError,
    JsonDecoder,
    StringDecoder,
    decode_batch,
)
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import EnvironmentFaultError, UsageError
from tests.services.json_api import JsonApi, Reply, running_api

COLUMNS = {"id": "int64", "name": "string", "at": "timestamp"}
USER_1 = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}
USER_2: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string", "default": "nobody"}],
}


def avro(schema: Any, datum: Any) -> bytes:
    text = BytesIO()
    fastavro.schemaless_writer(text, fastavro.parse_schema(schema), datum)
    return text.getvalue()


def context(folder: Path) -> ConstructContext:
    return ConstructContext(job="j", base_dir=str(folder))


def test_bytes_and_strings_keep_nulls() -> None:
    assert BytesDecoder().decode([b"\xff", None]).to_pylist() == [b"\xff", None]
    assert StringDecoder().decode(["ä".encode(), None, b""]).to_pylist() == ["ä", None, ""]


def test_json_takes_declared_columns_and_leaves_others_out() -> None:
    rows = [b'{"id": 1, "name": "a", "more": {"deep": [1]}}', b'{\n"at":"2026-01-01T00:00:00Z"}', None, b"null"]
    assert JsonDecoder(COLUMNS).decode(rows).to_pylist() == [
        {"id": 1, "name": "a", "at": None},
        {"id": None, "name": None, "at": datetime(2026, 1, 1, tzinfo=UTC)},
        None,
        None,
    ]


def test_json_columns_may_be_lists_objects_and_any_value() -> None:
    decoder = JsonDecoder({"id": "int64", "tags": ["string"], "place": {"city": "string"}, "more": "json"})
    rows = [
        b'{"id": 1, "tags": ["a", null], "place": {"city": "Ulm", "zip": 7}, "more": {"x": 0.12345678901234567890}}',
        b'{"id": 2, "more": "text"}',
        b'{"id": 3, "more": null}',
        None,
    ]
    assert decoder.decode(rows).to_pylist() == [
        {"id": 1, "tags": ["a", None], "place": {"city": "Ulm"}, "more": '{"x": 0.12345678901234567890}'},
        {"id": 2, "tags": None, "place": None, "more": '"text"'},
        {"id": 3, "tags": None, "place": None, "more": None},
        None,
    ]


@pytest.mark.parametrize("bad", [b"[1]", b"{", b'{"m": NaN}', b'{"m": 1, "m": 2}', b'{"m":' + b"[" * 10**6, b"1 2"])
def test_bad_message_with_a_json_column_is_found(bad: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_batch(JsonDecoder({"m": "json"}), [b'{"m": 1}', bad], null_where_bad=False)
    assert caught.value.index == 1


def test_number_too_large_for_float32_is_not_made_infinite() -> None:
    decoder = JsonDecoder({"x": {"y": ["float32"]}})
    with pytest.raises(DecodeError, match="too large for float32") as caught:
        decode_batch(decoder, [b'{"x": {"y": [3e38]}}', b'{"x": {"y": [1, 1e39]}}', b"{}"], null_where_bad=False)
    assert caught.value.index == 1


def test_number_too_large_for_float64_is_not_made_infinite() -> None:
    with pytest.raises(DecodeError, match="too large for float64") as caught:
        decode_batch(JsonDecoder({"x": "float64"}), [b'{"x": 1.7e308}', b'{"x": 1.8e308}'], null_where_bad=False)
    assert caught.value.index == 1


def test_number_too_large_is_refused_beside_a_message_with_an_infinity() -> None:
    with pytest.raises(DecodeError, match="too large for float64") as caught:
        decode_batch(JsonDecoder({"x": "float64"}), [b'{"x": Infinity}', b'{"x": 1.8e308}'], null_where_bad=False)
    assert caught.value.index == 1


@pytest.mark.parametrize("text", [b'{"x": 1.8e308, "y": "Info"}', b'{"x": 1.8e308, "z": Inf}'])
def test_number_too_large_is_refused_in_a_message_with_the_word_of_an_infinity(text: bytes) -> None:
    with pytest.raises(DecodeError, match=r"x is .*, which is too large for float64"):
        decode_batch(JsonDecoder({"x": "float64", "y": "string", "z": "float64"}), [text], null_where_bad=False)


def test_infinity_is_kept_beside_a_decimal_and_what_is_nested_too_deep_is_a_bad_message() -> None:
    decoder = JsonDecoder({"x": "float32", "y": "decimal(5,2)"})
    rows = decode_batch(decoder, [b'{"x": -Inf, "y": 1e1, "z": -NaN}'], null_where_bad=False)
    assert rows.to_pylist() == [{"x": float("-inf"), "y": Decimal("10.00")}]
    deep = b'{"x": Infinity, "z": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)  # some libraries raise it, and then the message can be read
    try:
        with pytest.raises(DecodeError, match="nested more than"):
            decode_batch(decoder, [deep], null_where_bad=False)
    finally:
        sys.setrecursionlimit(limit)


def test_time_with_an_offset_is_not_altered_to_fit_a_column_without_a_zone() -> None:
    decoder = JsonDecoder({"x": "timestamp_ntz"})
    with pytest.raises(
        DecodeError, match=r"field 'x' \S+\+01:00 has an offset, and timestamp\[us\] has no zone"
    ) as caught:
        decode_batch(
            decoder, [b'{"x": "2024-01-01T01:00:00"}', b'{"x": "2024-01-01T01:00:00+01:00"}'], null_where_bad=False
        )
    assert caught.value.index == 1


def test_number_with_more_digits_than_its_decimal_is_not_altered() -> None:
    decoder = JsonDecoder({"x": "decimal(5,2)", "day": "date"})
    with pytest.raises(DecodeError, match="has more digits than") as caught:
        decode_batch(decoder, [b'{"x": 999.99, "day": "2024-01-01"}', b'{"x": 1000}'], null_where_bad=False)
    assert caught.value.index == 1


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param([b'{"id":1}{"id":2}', b""], id="two-and-none"),
        pytest.param([b'{"id":1}}\n{"v":{"id":2}', b""], id="forged-wrapping"),
        pytest.param([b'{"name":"', b'"}'], id="two-halves-by-text"),
        pytest.param([b'{"id":', b"1}"], id="two-halves-by-object"),
        pytest.param([b'{"id":1},', b'{"id":2}'], id="comma"),
    ],
)
def test_json_message_cannot_make_up_for_another(pair: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        JsonDecoder({"id": "int64", "name": "string"}).decode(pair)


@pytest.mark.parametrize("bad", [b"[1]", b"1", b"x", b'{"id": "one"}', b"{", b"", b'{"id": 1, "id": 2}'])
def test_bad_message_is_found_among_many(bad: bytes) -> None:
    good = [json.dumps({"id": number}).encode() for number in range(100)]
    batch = [*good[:61], bad, *good[61:80], bad, *good[80:]]
    decoder = JsonDecoder(COLUMNS)
    with pytest.raises(DecodeError) as caught:
        decode_batch(decoder, batch, null_where_bad=False)
    assert caught.value.index == 61
    ids = [row["id"] if row else None for row in decode_batch(decoder, batch, null_where_bad=True).to_pylist()]
    assert ids == [*range(61), None, *range(61, 80), None, *range(80, 100)]


def test_text_that_is_no_utf8_is_found() -> None:
    with pytest.raises(DecodeError, match="UTF-8") as caught:
        decode_batch(StringDecoder(), [b"a", b"b", b"\xff"], null_where_bad=False)
    assert caught.value.index == 2


def test_json_text_that_is_no_utf8_is_found() -> None:
    batch = [b'{"name": "a"}', b'{"name": "\xff"}', b'{"name": "b"}']
    with pytest.raises(DecodeError, match="UTF-8") as caught:
        decode_batch(JsonDecoder(COLUMNS), batch, null_where_bad=False)
    assert caught.value.index == 1
    assert decode_batch(JsonDecoder(COLUMNS), batch, null_where_bad=True)[1].as_py() is None


def test_dates_are_texts_or_days_since_1970() -> None:
    decoder = JsonDecoder({"on": "date", "id": "int64"})
    texts = [b'{"on": "2026-01-31", "id": 1}', None, b'{"id": 2}']
    assert decoder.decode(texts).to_pylist() == [{"on": date(2026, 1, 31), "id": 1}, None, {"on": None, "id": 2}]
    assert decoder.decode([b'{"on": 20484}']).to_pylist() == [{"on": date(2026, 1, 31), "id": None}]
    both = [texts[0], b'{"on": 20484}', None, b'{"on": 20485, "id": 7}', texts[0]]
    day = date(2026, 1, 31)
    assert [row and row["on"] for row in decoder.decode(both).to_pylist()] == [day, day, None, date(2026, 2, 1), day]
    with pytest.raises(DecodeError, match="2026-02-30"):
        decoder.decode([b'{"on": "2026-02-30"}'])


def test_avro_types_become_arrow_types() -> None:
    schema = {
        "type": "record",
        "name": "All",
        "namespace": "x.y",
        "fields": [
            {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "maybe", "type": ["null", "int"], "default": None},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "again", "type": ["null", "Kind"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "sizes", "type": {"type": "map", "values": "double"}},
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
            {"name": "inner", "type": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "float"}]}},
        ],
    }
    datum = {
        "uuid": "6f1c2b9e-0000-4000-8000-000000000000",
        "maybe": None,
        "kind": "B",
        "again": "A",
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "price": Decimal("12.34"),
        "tags": ["a", "b"],
        "sizes": {"m": 1.5},
        "hash": b"\x01\x02",
        "inner": {"x": 0.5},
    }
    decoder = AvroDecoder(schema, None)
    assert decoder.type.field("price").type == pa.decimal128(6, 2)
    assert decoder.decode([avro(schema, datum), None]).to_pylist() == [datum | {"sizes": [("m", 1.5)]}, None]


def test_avro_schema_that_no_column_holds_is_refused() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}
    with pytest.raises(UsageError, match="contains itself"):
        AvroDecoder(tree, None)
    mixed = {"type": "record", "name": "Mixed", "fields": [{"name": "x", "type": ["int", "string"]}]}
    with pytest.raises(UsageError, match="union of 2 types"):
        AvroDecoder(mixed, None)
    deep: dict[str, Any] = {"type": "array", "items": "long"}
    for _ in range(1_000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UsageError, match="nested too deep"):
        AvroDecoder(deep, None)
    by_id = AvroDecoder(USER_1, lambda _: deep)
    with pytest.raises(UsageError, match=r"Schema 1 of the registry cannot be used: .* nested too deep"):
        by_id.decode([b"\0\0\0\0\1" + avro(USER_1, {"id": 5})])


@pytest.mark.parametrize(
    "bad", [pytest.param(b"", id="empty"), pytest.param(b"\x02\x02", id="left-over"), pytest.param(b"\x80", id="cut")]
)
def test_avro_datum_that_is_cut_or_too_long_is_refused(bad: bytes) -> None:
    decoder = AvroDecoder(USER_1, None)
    with pytest.raises(DecodeError):
        decoder.decode([bad])


@pytest.mark.parametrize(
    ("writer", "datum", "said"),
    [
        (
            {"type": "record", "name": "User", "fields": [{"name": "id", "type": "string"}]},
            {"id": "x"},
            "string is not long",
        ),
        ({"type": "record", "name": "User", "fields": []}, {}, "No default value for field id"),
        ({"type": "record", "name": "Other", "fields": USER_1["fields"]}, {"id": 1}, "Other"),
        ("string", "x", "string"),
    ],
    ids=["type", "field", "name", "no record"],
)
def test_message_of_a_schema_that_does_not_resolve_is_named(writer: Any, datum: Any, said: str) -> None:
    decoder = AvroDecoder(USER_1, {1: USER_1, 2: writer}.__getitem__)
    values = [b"\0\0\0\0\1" + avro(USER_1, {"id": 5}), b"\0\0\0\0\2" + avro(writer, datum)]
    with pytest.raises(DecodeError, match=said) as caught:
        decode_batch(decoder, values, null_where_bad=False)
    assert caught.value.index == 1
    assert decode_batch(decoder, values, null_where_bad=True).to_pylist() == [{"id": 5}, None]


def test_date_beyond_the_calendar_is_named() -> None:
    schema = {"type": "record", "name": "D", "fields": [{"name": "on", "type": {"type": "int", "logicalType": "date"}}]}
    plain = {"type": "record", "name": "D", "fields": [{"name": "on", "type": "long"}]}
    with pytest.raises(DecodeError, match="no Avro datum"):
        AvroDecoder(schema, None).decode([avro(plain, {"on": 2**62})])


def test_registry_folder_resolves_older_and_newer_messages(tmp_path: Path) -> None:
    for name, schema in {"1": USER_1, "2": USER_2, "users-value": USER_2}.items():
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    decoder = AvroDecoder.open(AvroDecoding(type="avro", registry="."), "users-value", context(tmp_path))
    messages = [
        b"\x00" + (1).to_bytes(4, "big") + avro(USER_1, {"id": 7}),
        b"\x00" + (2).to_bytes(4, "big") + avro(USER_2, {"id": 8, "name": "ann"}),
    ]
    assert decoder.decode(messages).to_pylist() == [{"id": 7, "name": "nobody"}, {"id": 8, "name": "ann"}]
    with pytest.raises(DecodeError, match="zero byte"):
        decoder.decode([avro(USER_1, {"id": 7})])
    stranger = b"\x00" + (9).to_bytes(4, "big") + b"\x02"
    with pytest.raises(DecodeError, match="the registry has no schema 9") as caught:
        decode_batch(decoder, [*messages, stranger], null_where_bad=False)
    assert caught.value.index == 2
    assert decode_batch(decoder, [stranger, messages[0]], null_where_bad=True).to_pylist()[0] is None


def test_schema_that_names_types_of_another_is_no_fault_of_a_message(tmp_path: Path) -> None:
    (tmp_path / "user.avsc").write_text(json.dumps(USER_1))
    home = {"name": "home", "type": "org.example.Address"}
    (tmp_path / "1.avsc").write_text(json.dumps(USER_1 | {"fields": [home]}))
    decoding = AvroDecoding(type="avro", registry=".", schema_file="user.avsc")
    decoder = AvroDecoder.open(decoding, "users-value", context(tmp_path))
    with pytest.raises(UsageError, match=r"Schema 1 of the registry cannot be used: org\.example\.Address"):
        decode_batch(decoder, [b"\x00" + (1).to_bytes(4, "big")], null_where_bad=True)


def test_registry_folder_that_is_not_there_is_no_fault_of_a_message(tmp_path: Path) -> None:
    (tmp_path / "user.avsc").write_text(json.dumps(USER_1))
    decoding = AvroDecoding(type="avro", registry="not/there", schema_file="user.avsc")
    decoder = AvroDecoder.open(decoding, "users-value", context(tmp_path))
    with pytest.raises(UsageError, match="cannot be read"):
        decode_batch(decoder, [b"\x00" + (1).to_bytes(4, "big")], null_where_bad=True)


def test_single_schema_is_a_file_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "user.avsc").write_text(json.dumps(USER_1))
    decoder = AvroDecoder.open(AvroDecoding(type="avro", schema_file="user.avsc"), "users-value", context(tmp_path))
    assert decoder.decode([avro(USER_1, {"id": 7})]).to_pylist() == [{"id": 7}]


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "cannot be read"), ("{", "cannot be read"), ('{"type": "colour"}', "cannot become columns")],
)
def test_bad_schema_file_is_named(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "user.avsc").write_text(text)
    with pytest.raises(UsageError, match=said):
        AvroDecoder.open(AvroDecoding(type="avro", schema_file="user.avsc"), "users-value", context(tmp_path))


def test_avro_without_any_schema_is_refused() -> None:
    with pytest.raises(ValidationError, match="schema_file"):
        AvroDecoding(type="avro")


@pytest.mark.parametrize(
    ("schema", "said"),
    [({"type": "array"}, "lacks 'items'"), ({"type": "enum", "name": "e"}, "lacks 'symbols'"), (5, "it is none")],
)
def test_json_that_is_no_schema_is_a_fault_of_the_schema_and_of_no_message(schema: Any, said: str) -> None:
    with pytest.raises(UsageError, match=rf"Schema 1 of the registry cannot be used: .*{said}"):
        AvroDecoder(USER_1, lambda _: schema).decode([b"\0\0\0\0\1\2"])
    with pytest.raises(UsageError, match=rf"The Avro schema cannot become columns: .*{said}"):
        AvroDecoder(schema, None)


def answering(body: bytes, status: int = 200, **headers: str) -> AbstractContextManager[JsonApi]:
    """Give one answer to all requests."""
    return running_api(lambda _: Reply(body, status, headers))


def test_schema_of_another_kind_is_named(tmp_path: Path) -> None:
    body = json.dumps({"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message User {}'}).encode()
    (tmp_path / "user.avsc").write_text(json.dumps(USER_1))
    with answering(body) as server:
        decoder = AvroDecoder.open(
            AvroDecoding(type="avro", registry=server.url, schema_file="user.avsc"), "users-value", context(tmp_path)
        )
        with pytest.raises(UsageError, match="is a schema of PROTOBUF, not of Avro"):
            decoder.decode([b"\0\0\0\0\1\2"])


@pytest.mark.parametrize(
    "body",
    [b"<html>Sign in</html>", b"", b"[1]", b"{}", b'{"schema": null}', b'{"schema": "{"}', b'"schema"', b"\xff"],
    ids=["page", "nothing", "list", "empty", "null", "cut", "text", "no UTF-8"],
)
def test_answer_that_is_no_schema_is_no_fault_of_a_message(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "user.avsc").write_text(json.dumps(USER_1))
    with answering(body) as server:
        decoder = AvroDecoder.open(
            AvroDecoding(type="avro", registry=server.url, schema_file="user.avsc"), "users-value", context(tmp_path)
        )
        with pytest.raises(UsageError, match="/schemas/ids/1 answers no schema"):
            decoder.decode([b"\0\0\0\0\1\2"])
        with pytest.raises(UsageError, match="/subjects/users-value/versions/latest answers no schema"):
            AvroDecoder.open(AvroDecoding(type="avro", registry=server.url), "users-value", context(tmp_path))


def test_registry_leads_to_no_other_server_and_gets_no_password_that_it_was_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login lake password open-sesame\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with answering(json.dumps({"schema": json.dumps(USER_1)}).encode()) as elsewhere:
        with (
            answering(b"", 302, Location=elsewhere.url) as server,
            pytest.raises(UsageError, match="answers 302, a redirect; put the new address into `registry`"),
        ):
            AvroDecoder.open(AvroDecoding(type="avro", registry=server.url), "users-value", context(tmp_path))
        assert ([one.headers.get("Authorization") for one in server.asked], elsewhere.asked) == ([None], [])


def test_password_in_the_url_of_a_registry_is_refused() -> None:
    with pytest.raises(ValidationError, match="registry_auth_env"):
        AvroDecoding(type="avro", registry="https://lake:open-sesame@registry.example.org")


def test_missing_password_of_the_registry_is_told_without_asking(tmp_path: Path) -> None:
    decoding = AvroDecoding(type="avro", registry="http://127.0.0.1:9", registry_auth_env="NO_SUCH_VARIABLE_HERE")
    with pytest.raises(EnvironmentFaultError, match="NO_SUCH_VARIABLE_HERE"):
        AvroDecoder.open(decoding, "users-value", context(tmp_path))
