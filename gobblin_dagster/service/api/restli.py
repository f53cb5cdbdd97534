"""Rest.li's text format of keys and parameters, protocol versions 2.0.0 and 1.0.0.

Version 2.0.0 writes a record as `(name:value,name:value)`, a list as `List(value,value)`, the empty text as `''`, and
percent-encodes what would be mistaken for one of these signs. Version 1.0.0 writes a record in a path as
`name=value&name=value` and in a query as `record.name=value`. The parser reads the raw request target: a framework that
decodes `%2C` and `%28` before routing makes keys unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from gobblin_dagster.service.api.errors import BadRequest

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
"""A parsed parameter: a text, a list, or a record."""

MAX_DEPTH = 16
"""Records and lists inside one another; no parameter of Gobblin's clients is deeper than 3."""

_SPECIAL = re.compile(r"[(),:]")
_PATH_SAFE = "-._~!$&*+=@"
_LIST = "List("


def parse_value(text: str, *, what: str, plus_is_space: bool = False) -> Value:
    """Parse a value of protocol 2.0.0.

    Args:
        text: the value as it stands in the request target, still percent-encoded.
        what: names the value in errors, such as "the key of /flowconfigsV2".
        plus_is_space: true in a query, false in a path.

    Raises:
        BadRequest: the text is not closed, is nested too deeply, or holds bytes that are not UTF-8.

    Example:
        >>> parse_value("(flowGroup:grp%20a,flowName:par%28en%29)", what="the key")
        {'flowGroup': 'grp a', 'flowName': 'par(en)'}
        >>> parse_value("List(5,'')", what="count")
        ['5', '']
    """
    parser = _Parser(text, what, plus_is_space)
    value = parser.value(0)
    if parser.at != len(text):
        raise parser.error(f"{text[parser.at]!r} is not expected at character {parser.at + 1}")
    return value


class _Parser:
    """Reads one value from left to right; never goes back."""

    def __init__(self, text: str, what: str, plus_is_space: bool) -> None:
        self.text = text
        self.at = 0
        self._what = what
        self._plus_is_space = plus_is_space

    def error(self, problem: str) -> BadRequest:
        return BadRequest(f"Cannot read {self._what}: {problem}. Got {self.text[:80]!r}.")

    def value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels of lists and records")
        if self.text.startswith(_LIST, self.at):
            self.at += len(_LIST)
            return self._items(depth)
        if self.text.startswith("(", self.at):
            self.at += 1
            return self._fields(depth)
        return self._word()

    def _items(self, depth: int) -> list[Value]:
        items: list[Value] = []
        if self._skip(")"):
            return items
        while True:
            items.append(self.value(depth + 1))
            if self._skip(")"):
                return items
            self._expect(",")

    def _fields(self, depth: int) -> dict[str, Value]:
        fields: dict[str, Value] = {}
        if self._skip(")"):
            return fields
        while True:
            name = self._word()
            self._expect(":")
            if name in fields:
                raise self.error(f"the field {name!r} stands twice")
            fields[name] = self.value(depth + 1)
            if self._skip(")"):
                return fields
            self._expect(",")

    def _word(self) -> str:
        found = _SPECIAL.search(self.text, self.at)
        end = found.start() if found else len(self.text)
        raw, self.at = self.text[self.at : end], end
        if raw == "''":
            return ""
        return decode(raw.replace("+", " ") if self._plus_is_space else raw, self._what)

    def _skip(self, sign: str) -> bool:
        if self.text.startswith(sign, self.at):
            self.at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            got = repr(self.text[self.at]) if self.at < len(self.text) else "the end"
            raise self.error(f"expected {sign!r} at character {self.at + 1}, got {got}")


def decode(raw: str, what: str) -> str:
    """Decode percent-encoded UTF-8; raises BadRequest if the bytes are not UTF-8, or hold a NUL."""
    try:
        text = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"Cannot read {what}: {raw[:80]!r} is not UTF-8 after percent-decoding.") from error
    if "\0" in text:  # PostgreSQL can neither store nor compare it
        raise BadRequest(f"Cannot read {what}: {raw[:80]!r} holds a NUL.")
    return text


def encode(value: str) -> str:
    """Return a text as it stands inside of a path key of protocol 2.0.0; ASCII."""
    return quote(value, safe=_PATH_SAFE) if value else "''"


def encode_pairs(fields: Mapping[str, str | int]) -> str:
    """Return fields as a path key of protocol 1.0.0, in the order given.

    Example:
        >>> encode_pairs({"flowGroup": "a&b", "flowName": "c=d"})
        'flowGroup=a%26b&flowName=c%3Dd'
    """
    return "&".join(f"{name}={quote(str(value), safe='-._~')}" for name, value in fields.items())


def encode_key(fields: Mapping[str, str | int]) -> str:
    """Return a record as a path key of protocol 2.0.0, its names sorted.

    Example:
        >>> encode_key({"flowName": "par(en)", "flowGroup": "grp a"})
        '(flowGroup:grp%20a,flowName:par%28en%29)'
    """
    return "(" + ",".join(f"{name}:{encode(str(value))}" for name, value in sorted(fields.items())) + ")"


_HEADER_SPECIAL = re.compile(r"[%(),:']")


def encode_header_key(fields: Mapping[str, str]) -> str:
    """Return a record as the header `X-RestLi-Id` shows it.

    Only `% ( ) , : '` are escaped there. What no header can hold (controls, signs outside of ASCII) is escaped too;
    Rest.li itself garbles these.
    """

    def shown(value: str) -> str:
        escaped = _HEADER_SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", value)
        return "".join(sign if " " <= sign <= "~" else quote(sign) for sign in escaped) or "''"

    return "(" + ",".join(f"{name}:{shown(value)}" for name, value in sorted(fields.items())) + ")"


def parse_path_key(raw: str, *, version: int, what: str) -> dict[str, str]:
    """Return the fields of a key in a path, as texts.

    `$params`, which Gobblin's Java clients always send, is left out.

    Args:
        raw: the path segment, still percent-encoded.
        version: 1 or 2, of the protocol.
        what: names the key in errors.

    Raises:
        BadRequest: it is no record, or a field is no text.
    """
    if version == 1:
        return {
            name: text
            for name, text in _pairs(raw, what, plus_is_space=False)
            if not name.startswith("$params.") and name != "$params"
        }
    value = parse_value(raw, what=what)
    if not isinstance(value, dict):
        raise BadRequest(f"Cannot read {what}: expected (name:value,...), got {raw[:80]!r}.")
    return {name: _text(field, f"{name} in {what}") for name, field in value.items() if name != "$params"}


def parse_query(raw: str, *, version: int) -> dict[str, Value]:
    """Return the parameters of a query.

    A parameter of version 1 named `flowId.flowGroup` becomes the field `flowGroup` of the record `flowId`. `;` does not
    part parameters: Rest.li's clients leave it raw inside of values.

    Raises:
        BadRequest: a parameter cannot be read, or stands twice.
    """
    found: dict[str, Value] = {}
    for name, text in _raw_pairs(raw):
        key = decode(name.replace("+", " "), "the query")
        what = f"the parameter {key[:40]!r}"
        record, _, field = key.partition(".") if version == 1 else (key, "", "")
        if field:
            fields = found.setdefault(record, {})
            if not isinstance(fields, dict) or field in fields:
                raise BadRequest(f"The parameter {key[:80]!r} stands twice.")
            fields[field] = decode(text.replace("+", " "), what)
            continue
        if key in found:
            raise BadRequest(f"The parameter {key[:80]!r} stands twice.")
        if version == 1 or not text.startswith((_LIST, "(", "''")):
            found[key] = decode(text.replace("+", " "), what)
        else:
            found[key] = parse_value(text, what=what, plus_is_space=True)
    return found


def text_parameter(parameters: Mapping[str, Value], name: str) -> str | None:
    """Return a parameter as a text; None if it is not there.

    Gobblin's status clients send scalars as `List(x)`, which counts as `x`. Raises BadRequest for anything else.
    """
    value = parameters.get(name)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return None if value is None else _text(value, f"the parameter {name!r}")


def int_parameter(parameters: Mapping[str, Value], name: str, default: int, *, least: int = 0) -> int:
    """Return a parameter as a number from `least` to 2^31 - 1; raises BadRequest for anything else."""
    text = text_parameter(parameters, name)
    if text is None:
        return default
    if not re.fullmatch(r"-?[0-9]{1,10}", text) or not least <= int(text) < 2**31:
        raise BadRequest(f"The parameter {name!r} takes a number from {least} to 2147483647, got {text[:40]!r}.")
    return int(text)


def bool_parameter(parameters: Mapping[str, Value], name: str) -> bool | None:
    """Return a parameter as true or false; None if it is not there; raises BadRequest for anything else."""
    text = text_parameter(parameters, name)
    if text not in (None, "true", "false"):
        raise BadRequest(f"The parameter {name!r} takes true or false, got {str(text)[:40]!r}.")
    return None if text is None else text == "true"


def record_parameter(parameters: Mapping[str, Value], name: str, fields: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a parameter that is a record; raises BadRequest if it or one of them is missing."""
    value = parameters.get(name)
    if value is None:
        raise BadRequest(f"Parameter '{name}' is required")
    if not isinstance(value, dict):
        raise BadRequest(f"The parameter {name!r} takes a record, ({fields[0]}:...), got {str(value)[:80]!r}.")
    return {field: _required(value, field, f"the parameter {name!r}") for field in fields}


Mask: TypeAlias = "dict[str, Mask | None]"
"""Fields that an answer shows; None: the whole field."""


def parse_mask(text: str) -> Mask:
    """Parse the parameter `fields`, which chooses what an answer shows.

    Raises:
        BadRequest: it cannot be read.

    Example:
        >>> parse_mask("templateUris,id:(flowName)")
        {'templateUris': None, 'id': {'flowName': None}}
    """
    parser = _MaskParser(text)
    mask = parser.fields(0)
    if parser.at != len(text):
        raise parser.error()
    return mask


class _MaskParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def error(self) -> BadRequest:
        return BadRequest(f"The parameter 'fields' takes a,b:(c,d), got {self.text[:80]!r}.")

    def fields(self, depth: int) -> Mask:
        if depth > MAX_DEPTH:
            raise self.error()
        mask: Mask = {}
        while True:
            found = re.compile(r"[^(),:]+").match(self.text, self.at)
            if found is None:
                raise self.error()
            self.at = found.end()
            name = found[0]
            if self.text.startswith(":(", self.at):
                self.at += 2
                mask[name] = self.fields(depth + 1)
                if not self.text.startswith(")", self.at):
                    raise self.error()
                self.at += 1
            else:
                mask[name] = None
            if not self.text.startswith(",", self.at):
                return mask
            self.at += 1


def project(document: Mapping[str, Any], mask: Mask) -> dict[str, Any]:
    """Return the fields of a document that a mask chooses; lists are masked item by item."""

    def shown(value: Any, inner: Mask | None) -> Any:
        if inner is None:
            return value
        if isinstance(value, list):
            return [shown(item, inner) for item in value]
        return project(value, inner) if isinstance(value, Mapping) else value

    return {name: shown(document[name], inner) for name, inner in mask.items() if name in document}


def _raw_pairs(raw: str) -> list[tuple[str, str]]:
    pairs = (part.partition("=") for part in raw.split("&") if part)
    return [(name, text) for name, _, text in pairs]


def _pairs(raw: str, what: str, *, plus_is_space: bool) -> list[tuple[str, str]]:
    def decoded(text: str) -> str:
        return decode(text.replace("+", " ") if plus_is_space else text, what)

    return [(decoded(name), decoded(text)) for name, text in _raw_pairs(raw)]


def _text(value: Value, what: str) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"Expected a text for {what}, got {str(value)[:80]!r}.")
    return value


def _required(fields: Mapping[str, Value], name: str, what: str) -> str:
    if name not in fields:
        raise BadRequest(f"{what[0].upper()}{what[1:]} lacks the field {name!r}.")
    return _text(fields[name], f"{name} of {what}")
