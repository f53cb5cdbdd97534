"""Convert texts of Gobblin's keys to values of our fields; each function raises ValueError with what was expected."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from gobblin_dagster.core.utils.json_text import parse_json

_REFERENCE = re.compile(r"\$\{\w+\}")
_CASED = re.compile(r"\$\{\w+\}|[^$]+")
"""References, and the texts between them."""
_BRACES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+\}")
"""What may hold a brace in a pattern: an escape, a class, or a number of repetitions."""
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
"""Escapes and classes of a pattern."""


class Plain(str):
    """A reference to a variable whose value is parsed, for numbers and booleans."""

    __slots__ = ()


def text(given: str) -> str:
    """Return the text itself."""
    return given


def lower(given: str) -> str:
    """Return the text in lower case, but for names of variables; Gobblin writes the same words in upper case."""
    return _CASED.sub(lambda part: part[0] if part[0].startswith("${") else part[0].lower(), given)


def upper(given: str) -> str:
    """Return the text in upper case, but for names of variables."""
    return _CASED.sub(lambda part: part[0] if part[0].startswith("${") else part[0].upper(), given)


def words(given: str) -> list[str]:
    """Return the parts of a comma-separated list, trimmed; empty ones are left out.

    Example:
        >>> words("a, b,,c")
        ['a', 'b', 'c']
    """
    return [part.strip() for part in given.split(",") if part.strip()]


def patterns(given: str) -> list[str]:
    """Return the regular expressions of a list; raise ValueError for those that mean something else in Java.

    Example:
        >>> patterns("a.*, b{2}")
        ['a.*', 'b{2}']
    """
    found = words(given)
    for one in found:
        pattern(one)
        if "{" in _BRACES.sub("", _bare(one)):
            raise ValueError(
                f"expected regular expressions, got {one[:60]!r} with a brace that is not closed; commas separate "
                "patterns, also those inside of braces: write a{1,3} as aa?a?"
            )
    return found


def pattern(given: str) -> str:
    """Return a regular expression; raise ValueError if it means something else in Java."""
    text = _bare(given)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # Java intersects classes: [a-z&&[^b]]
            re.compile(text, re.ASCII)
    except (re.error, ValueError, FutureWarning) as error:
        raise ValueError(f"expected regular expressions, got {given[:60]!r}: {error}") from None
    for part in _PARTS.findall(text):
        is_nested = part.startswith("[") and "[" in re.sub(r"\\.", "", part[1:])
        if is_nested or "\\0" in part.replace("\\\\", ""):  # a class inside of a class; octal digits
            raise ValueError(
                f"expected regular expressions, got {given[:60]!r}: {part[:20]!r} means something else in Java; "
                "write it in another way"
            )
    return given


def _bare(pattern: str) -> str:
    return _REFERENCE.sub("", pattern.replace("$$", "$"))


def switch(given: str) -> bool | Plain:
    """Return a truth value."""
    if _REFERENCE.fullmatch(given):
        return Plain(given)
    if given.lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, got {given[:60]!r}")
    return given.lower() == "true"


def decides(texts: Mapping[str, str], key: str, default: str = "false") -> bool:
    """Return a truth value by which other fields are made; raise ValueError for a variable, read by runs alone."""
    value = switch(texts.get(key, default))
    if isinstance(value, Plain):
        raise ValueError(f"{key} takes no variable, because other fields depend on it; write true or false")
    return value


def switched_off(given: str) -> bool:
    """Return the opposite of a boolean: Gobblin's key says that something is skipped."""
    value = switch(given)
    if isinstance(value, Plain):
        raise ValueError("expected true or false; a variable cannot be turned round")
    return not value


def count(given: str) -> int | Plain:
    """Return a whole number."""
    if _REFERENCE.fullmatch(given):
        return Plain(given)
    try:
        return int(given)
    except ValueError:
        raise ValueError(f"expected a whole number, got {given[:60]!r}") from None


def whole(given: str) -> int:
    """Return a whole number that is no variable."""
    found = count(given)
    if isinstance(found, Plain):
        raise ValueError("expected a whole number; a variable cannot be calculated with")
    return found


def number(given: str) -> float | Plain:
    """Return a number."""
    if _REFERENCE.fullmatch(given):
        return Plain(given)
    try:
        return float(given)
    except ValueError:
        raise ValueError(f"expected a number, got {given[:60]!r}") from None


def milliseconds(given: str) -> float:
    """Return seconds of a number of milliseconds."""
    return float(number(given)) / 1000


def name(given: str) -> str:
    """Return a valid name: characters other than letters, digits and `_` become `_`.

    Example:
        >>> name("org.apache.gobblin-example")
        'org_apache_gobblin_example'
    """
    plain = re.sub(r"\W", "_", given, flags=re.ASCII)
    return plain if plain[:1].isalpha() else f"n{plain}"


def only(given: str) -> str:
    """Return the one word of a list."""
    found = words(given)
    if len(found) != 1:
        raise ValueError(f"expected one, got {len(found)}: {', '.join(found)[:60]}")
    return found[0]


def mode(given: str) -> str:
    """Return permissions as octal text of three digits, or four with a leading zero."""
    return given.strip()


def file_system(given: str) -> str:
    """Return `scheme://host:port` of a file system, empty for this machine's; as in Hadoop, it has no path.

    Example:
        >>> file_system("hdfs://nn:8020/"), file_system("file:///")
        ('hdfs://nn:8020', '')
    """
    scheme, mark, rest = given.partition("://")
    if given.startswith("file:") or not given:
        return ""
    if _REFERENCE.fullmatch(given):
        return given
    if not mark or "/" in rest.rstrip("/"):
        raise ValueError(f"expected a file system as hdfs://host:port, without a path, got {given[:60]!r}")
    return f"{scheme}://{rest.rstrip('/')}"


def folder(given: str) -> str:
    """Return a folder; one of this machine as a plain path, because Hadoop decodes no `%20` in `file:///a%20b`.

    Example:
        >>> folder("file:/out"), folder("file:///out"), folder("hdfs://nn/out")
        ('/out', '/out', 'hdfs://nn/out')
    """
    return re.sub(r"^file:(//)?(?=/)", "", given)


def watermark_type(given: str) -> str:
    """Return the type of a watermark column."""
    found = lower(given)
    return {"simple": "long"}.get(found, found)


def position(given: str) -> str | int:
    """Return a position that Gobblin writes as `yyyyMMddHHmmss` (or its beginning), or as a plain number.

    Example:
        >>> position("20130131050000"), position("20130131"), position("17")
        ('2013-01-31T05:00:00', '2013-01-31', 17)
    """
    if given.upper().startswith("CURRENT"):
        raise ValueError("a beginning that moves with the time is not carried; write yyyyMMddHHmmss")
    if not re.fullmatch(r"-?[0-9]{1,19}", given):
        raise ValueError(f"expected yyyyMMddHHmmss or a whole number, got {given[:60]!r}")
    if len(given) not in (8, 10, 12, 14):
        return int(given)
    form = "%Y%m%d%H%M%S"[: len(given) - 2]
    try:
        found = datetime.strptime(given, form)  # the zone is the source's
    except ValueError:
        raise ValueError(f"expected yyyyMMddHHmmss, got {given!r}") from None
    return found.date().isoformat() if len(given) == 8 else found.isoformat()


def after_position(given: str) -> str | int:
    """Return the position after the given one: Gobblin's bound is inclusive, ours is exclusive.

    Example:
        >>> after_position("20130131"), after_position("20130131235959"), after_position("17")
        ('2013-02-01', '2013-02-01T00:00:00', 18)
    """
    found = position(given)
    if isinstance(found, int):
        return found + 1
    step = {8: timedelta(days=1), 10: timedelta(hours=1), 12: timedelta(minutes=1)}.get(
        len(given), timedelta(seconds=1)
    )
    later = datetime.fromisoformat(found) + step
    return later.date().isoformat() if len(given) == 8 else later.isoformat()


def pairs(given: str) -> dict[str, str]:
    """Return texts by text, written as JSON."""
    try:
        found = parse_json(given)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f'expected JSON like {{"old": "new"}}, got {given[:60]!r}')
    return found


def columns(given: str) -> dict[str, Any]:
    """Return our type by column name, for a schema in JSON; nested columns are left out."""
    return {name: shape for name, shape in shapes(given).items() if isinstance(shape, str)}


def quote(given: str) -> str:
    """Return the character around values of CSV: Gobblin's class knows `"` alone, and drops any other one."""
    if given[:1] != '"':
        raise ValueError(
            f'expected ", which alone encloses values there, got {given[:60]!r}; without the key none does'
        )
    return '"'


def column_names(given: str) -> list[str]:
    """Return the names of such a schema, in order."""
    return list(shapes(given))


def shapes(given: str) -> dict[str, Any]:
    """Return shapes by column name, for a schema in Gobblin's or Avro's JSON form.

    Example:
        >>> shapes('[{"columnName": "id", "dataType": {"type": "long"}}]')
        {'id': 'int64'}
        >>> shapes('{"type": "record", "fields": [{"name": "tags", "type": {"type": "array", "items": "string"}}]}')
        {'tags': ['string']}
    """
    try:
        found: Any = parse_json(given)
        return _record(found["fields"] if isinstance(found, dict) else found)
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        problem = "expected a schema in JSON, a list of {columnName, dataType: {type}}, or Avro's"
        raise ValueError(f"{problem}: {type(error).__name__} {str(error)[:60]}") from None


_TYPES = {
    "int": "int32",
    "integer": "int32",
    "long": "int64",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "bool",
    "bool": "bool",
    "string": "string",
    "varchar": "string",
    "enum": "string",
    "uuid": "string",
    "bytes": "binary",
    "date": "date",
    "timestamp": "timestamp",
}


def _record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        str(field["columnName"] if "columnName" in field else field["name"]): _shape(
            field["dataType"] if "dataType" in field else field["type"]
        )
        for field in fields
    }


def _shape(kind: Any) -> Any:
    """Return the shape of a type: a name, a union with null, or a mapping that says its `type` and its parts."""
    if isinstance(kind, list):  # Avro's way to say that a value may be absent
        return _shape(next(one for one in kind if one != "null"))
    if isinstance(kind, str):
        return _TYPES.get(kind.lower(), kind.lower())
    match kind["type"]:
        case "record":
            return _record(kind["values"] if "values" in kind else kind["fields"])
        case "array":
            return [_shape(kind["items"] if "items" in kind else kind["values"])]
        case inner:
            return _shape(inner)


def json_object(given: str) -> dict[str, Any]:
    """Return a JSON object."""
    try:
        found = parse_json(given)
    except ValueError as error:
        raise ValueError(f"expected JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, got {given[:60]!r}")
    return found


def columns_whole(given: str) -> list[str]:
    """Return names of columns; raise ValueError for fields inside of a column."""
    if nested := [name for name in words(given) if "." in name]:
        raise ValueError(f"expected whole columns, got the field {nested[0][:60]!r} of one")
    return words(given)


def column_whole(given: str) -> str:
    """Return the name of a column; raise ValueError for a field inside of a column."""
    if "." in given:
        raise ValueError(
            f"expected a whole column, got the field {given[:60]!r} of one; give the class in `classes` of "
            "gobblin.yaml: {type: sql, where: \"address.city = 'Oslo'\"}"
        )
    return given


def retrieved(given: str) -> str:
    """Return the select list that leaves one field of a row.

    Example:
        >>> retrieved("address.city")
        '"address"."city" AS "city"'
    """
    return f"{_path(given)} AS {_path(given.strip().rpartition('.')[2])}"


def is_there(given: str) -> str:
    """Return the condition that a field has a value."""
    return f"{_path(given)} IS NOT NULL"


def flattened(given: str) -> str:
    """Return the select list that adds nested fields after the columns; names without a dot are ignored.

    Example:
        >>> flattened("address,address.cityName")
        '*, "address"."cityName" AS "addressCityname"'
    """
    nested = [name for name in words(given) if "." in name]
    if not nested:
        raise ValueError(f"expected nested fields, as address.city, got {given[:60]!r}")
    names: dict[str, str] = {}
    for path in nested:
        first, *others = path.split(".")
        names.setdefault(first.lower() + "".join(map(str.capitalize, others)), path)
    return ", ".join(["*", *(f"{_path(path)} AS {_path(name)}" for name, path in names.items())])


def _path(given: str) -> str:
    """Return a dotted path, each of its names quoted for SQL."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in given.strip().split("."))
