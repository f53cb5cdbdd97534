"""Turn pydantic's errors into plain sentences: what was expected, what was found, and a hint for misspelt names."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from gobblin_dagster.spec.document import Loc
from gobblin_dagster.spec.job import NAME_PATTERN, ConstructSpec

MAX_SHOWN = 60
"""Characters of a wrong value that a message shows."""

Shown = Callable[[Loc], str | None]
"""Returns the text to show in place of a value (its reference to an environment variable); None to show the value."""

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_type": "keys and values",
    "dict_type": "keys and values",
    "mapping_type": "keys and values",
    "tuple_type": "a list",
    "list_type": "a list",
    "set_type": "a list",
    "date_type": "a date",
    "date_from_datetime_parsing": "a date",
    "datetime_type": "a date and time",
    "datetime_from_date_parsing": "a date and time",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "string_too_short": ("min_length", "text of at least {} character(s)"),
    "string_too_long": ("max_length", "text of at most {} character(s)"),
}
_CONSTRUCTS = {"ConstructSpec"} | {cls.__name__ for cls in ConstructSpec.__subclasses__()}
_A_NAME = "a name (letters, digits and _, beginning with a letter, at most 63)"
_UNSHOWN = "a text that is not shown, as it may be a secret"
_MADE_UP = re.compile(r"(constrained-|literal\[).*")
"""Names of union members that are not keys of the document."""
_TAG = re.compile(r"'([^']*)'")
"""Each of the names in pydantic's list of the members of a union."""
_MEMBER = re.compile(rf"int|str|float|bool|date|datetime|{_MADE_UP.pattern}")


def explain(error: ValidationError, model: type[BaseModel], shown: Shown = lambda _: None) -> Iterator[tuple[Loc, str]]:
    """Yield (place, problem) for each error that pydantic found in a document for `model`."""
    for group in _by_value(error.errors(include_url=False)):
        first = group[0]
        place = _without_member(tuple(first["loc"]), alone=len(group) == 1)
        loc = _walk(model, place)[0]
        got = shown(loc) or (_UNSHOWN if _may_be_secret(loc, first.get("input")) else show(first.get("input")))
        if len(group) == 1:
            yield loc, _problem(first, place, model, got, is_reference=shown(loc) is not None)
        else:
            yield loc, f"expected {' or '.join(dict.fromkeys(map(_wanted, group)))}, got {got}"


def _may_be_secret(loc: Loc, value: Any) -> bool:
    """Return whether a text stands where a secret is only to be named: people write the secret itself there."""
    is_named = any(isinstance(part, str) and part.endswith("_env") for part in loc)
    return isinstance(value, str) and (is_named or loc[:1] == ("secrets",))


def _by_value(found: Iterable[ErrorDetails]) -> list[list[ErrorDetails]]:
    """Group the errors of all members of a union about the same value."""
    groups: list[list[ErrorDetails]] = []
    for details in found:
        if _is_consequence(details):
            continue
        if groups and _is_same_union(groups[-1][0], details):
            groups[-1].append(details)
        else:
            groups.append([details])
    return groups


def _is_same_union(first: ErrorDetails, other: ErrorDetails) -> bool:
    one, two = first["loc"], other["loc"]
    return (
        one[:-1] == two[:-1]
        and bool(_wanted(first) and _wanted(other))
        and _MEMBER.fullmatch(str(one[-1])) is not None
        and first.get("input") is other.get("input")
    )


def _without_member(loc: Loc, *, alone: bool) -> Loc:
    """Return a place without the name of a union member, which pydantic adds at its end."""
    named = loc and (not alone or _MADE_UP.fullmatch(str(loc[-1])))
    return loc[:-1] if named else loc


def _is_consequence(details: ErrorDetails) -> bool:
    """Return whether pydantic calls a list too short only because it dropped faulty items, which it reports too."""
    given = details.get("input")
    return details["type"] == "too_short" and isinstance(given, list) and len(given) >= details["ctx"]["min_length"]


def show(value: Any) -> str:
    """Return a value as short text for messages; for lists and mappings only their size or keys."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 1] + "…")
        case dict():
            return "keys and values (" + _first(map(str, value)) + ")"
        case list() | tuple():
            return f"a list of {len(value)}"
        case _:
            return str(value)[:MAX_SHOWN]


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint for a misspelt name: the nearest known name, else all known names.

    Args:
        name: the misspelt name.
        known: the names that are allowed.
        cutoff: how similar two names must be at least, 0-1.
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=cutoff)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {_first(names, 20)}" if names else "none is known here"


def _first(names: Iterable[str], limit: int = 5) -> str:
    every = [name[:MAX_SHOWN] for name in names]
    return ", ".join(every[:limit]) + (", ..." if len(every) > limit else "")


def _problem(details: ErrorDetails, loc: Loc, model: type[BaseModel], got: str, *, is_reference: bool) -> str:
    kind, facts = details["type"], details.get("ctx", {})
    match kind:
        case "missing":
            problem = "is missing"
        case "extra_forbidden":
            problem = f"unknown key; {nearest(str(loc[-1]), _keys(model, loc[:-1]))}"
        case "too_short":
            problem = f"expected at least {facts['min_length']} item(s), got {facts['actual_length']}"
        case "union_tag_invalid" if facts["discriminator"] == "'type'":
            problem = (
                f"unknown type {show(facts['tag'])}; {nearest(facts['tag'], _TAG.findall(facts['expected_tags']))}"
            )
        case "union_tag_not_found" if facts["discriminator"] == "'type'":
            problem = f"expected keys and values with `type`, got {got}"
        case "value_error":
            problem = str(facts["error"])
        case _ if wanted := _wanted(details):
            hint = _quote_hint(kind, details.get("input"), got, is_reference=is_reference)
            problem = f"expected {wanted}, got {got}{hint}"
        case _:
            problem = f"{details['msg'][0].lower()}{details['msg'][1:]}, got {got}"
    return problem


def _wanted(details: ErrorDetails) -> str:
    """Return what was expected; empty if this kind of error has no such text."""
    kind, facts = details["type"], details.get("ctx", {})
    if kind in ("literal_error", "enum"):
        return str(facts["expected"])
    if kind == "string_pattern_mismatch":
        return _A_NAME if facts["pattern"] == NAME_PATTERN else f"text that matches {facts['pattern']}"
    if kind == "model_type" and facts["class_name"] in _CONSTRUCTS:
        return "a type, or keys and values with `type`"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return words.format(facts[bound])
    return _WANTED.get(kind, "")


def _quote_hint(kind: str, value: Any, got: str, *, is_reference: bool) -> str:
    """Return a hint to use quotes, if text was expected and YAML read a number or boolean."""
    if kind != "string_type" or not isinstance(value, bool | int | float):
        return ""
    what = ", whose value was read as a number or truth value" if is_reference else ""
    return f'{what}; write "{got}", in quotes, to make it text'


def _keys(model: type[BaseModel], loc: Loc) -> list[str]:
    """Return the keys that the model allows at a place."""
    found = _inner(_walk(model, loc)[1])
    return list(found.model_fields) if _is_model(found) else []


def _walk(model: type[BaseModel], loc: Loc) -> tuple[Loc, Any]:
    """Return a place of pydantic's as it is in the document, and what the model has there.

    Pydantic adds tags of unions, and `[key]` if the key itself is wrong.
    """
    here: Any = model
    shown: list[str | int] = []
    for part in loc:
        if (member := _tagged(here, part)) is not None:
            here = member
        elif part != "[key]":
            here = _below(here, part)
            shown.append(part)
    return tuple(shown), here


def _tagged(annotation: Any, tag: str | int) -> Any:
    """Return the member of a union with this tag; None if there is none."""
    if any(isinstance(note, Tag) and note.tag == tag for note in get_args(annotation)[1:]):
        return get_args(annotation)[0]
    members = _members(annotation)
    if members == [annotation]:
        return None
    found = (member if _has_type(member, tag) else _tagged(member, tag) for member in members)
    return next((one for one in found if one is not None), None)


def _has_type(annotation: Any, tag: str | int) -> bool:
    """Return whether a model is the member of a union whose `type` is the tag."""
    named = annotation.model_fields.get("type") if _is_model(annotation) else None
    return named is not None and get_origin(named.annotation) is Literal and tag in get_args(named.annotation)


def _below(annotation: Any, part: str | int) -> Any:
    """Return what a model, mapping or list has at a key or index; None if that is not known."""
    members = _members(annotation)
    if members != [annotation]:
        return next((found for one in members if (found := _below(one, part)) is not None), None)
    if _is_model(annotation):
        fields = annotation.model_fields
        return fields[part].annotation if part in fields else None
    arguments = get_args(annotation)
    return arguments[-1 if get_origin(annotation) in {dict, Mapping} else 0] if arguments else None


def _members(annotation: Any) -> list[Any]:
    """Return the members of a union, what is annotated, or the annotation itself."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return [arguments[0]]
    return list(arguments) if origin in {Union, types.UnionType} else [annotation]


def _inner(annotation: Any) -> Any:
    """Return the model inside optional, annotated and list types."""
    while (origin := get_origin(annotation)) in {Annotated, Union, types.UnionType, tuple, list}:
        arguments = get_args(annotation)
        annotation = (
            arguments[0] if origin is not types.UnionType else next(a for a in arguments if a is not type(None))
        )
    return annotation


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)
