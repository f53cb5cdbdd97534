"""Pydantic's faults in plain words: what was expected, what was got, and the nearest name where one was misspelt."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gobblin_dagster.spec.document import Loc
from gobblin_dagster.spec.job import NAME_PATTERN

MAX_SHOWN = 60
"""Characters of a wrong value that a message shows."""

Shown = Callable[[Loc], str | None]
"""Returns what to show instead of the value at a place (a reference to an environment variable), or None."""

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
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
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "string_too_short": ("min_length", "text of at least {} character(s)"),
    "string_too_long": ("max_length", "text of at most {} character(s)"),
}


def explain(error: ValidationError, model: type[BaseModel], shown: Shown = lambda _: None) -> Iterator[tuple[Loc, str]]:
    """Yield (place, problem) of each fault that pydantic found in a document for `model`."""
    for details in error.errors(include_url=False):
        if _is_consequence(details):
            continue
        loc: Loc = tuple(details["loc"])
        got = shown(loc) or show(details.get("input"))
        yield loc, _problem(details, loc, model, got, is_reference=shown(loc) is not None)


def _is_consequence(details: ErrorDetails) -> bool:
    """Tell whether a list is called too short only because its faulty items were left out; those have their faults."""
    given = details.get("input")
    return details["type"] == "too_short" and isinstance(given, list) and len(given) >= details["ctx"]["min_length"]


def show(value: Any) -> str:
    """Show a value of a document, bounded; never the content of lists and mappings."""
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


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the nearest known one, else the known ones."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
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
        case "literal_error" | "enum":
            problem = f"expected {facts['expected']}, got {got}"
        case "too_short":
            problem = f"expected at least {facts['min_length']} item(s), got {facts['actual_length']}"
        case "string_pattern_mismatch" if facts["pattern"] == NAME_PATTERN:
            problem = f"expected a name (letters, digits and _, beginning with a letter, at most 63), got {got}"
        case "value_error":
            problem = str(facts["error"])
        case _ if kind in _BOUNDS:
            bound, words = _BOUNDS[kind]
            problem = f"expected {words.format(facts[bound])}, got {got}"
        case _ if kind in _WANTED:
            hint = _quote_hint(kind, details.get("input"), got, is_reference=is_reference)
            problem = f"expected {_WANTED[kind]}, got {got}{hint}"
        case _:
            problem = f"{details['msg'][0].lower()}{details['msg'][1:]}, got {got}"
    return problem


def _quote_hint(kind: str, value: Any, got: str, *, is_reference: bool) -> str:
    """Say how to keep text that YAML read as something else."""
    if kind != "string_type" or not isinstance(value, bool | int | float):
        return ""
    what = ", whose value was read as a number or truth value" if is_reference else ""
    return f'{what}; write "{got}", in quotes, to make it text'


def _keys(model: type[BaseModel], loc: Loc) -> list[str]:
    """Return the keys that the model allows at a place."""
    here: Any = model
    for part in loc:
        if isinstance(part, str):
            fields = here.model_fields if _is_model(here) else {}
            here = _inner(fields[part].annotation) if part in fields else None
    return list(here.model_fields) if _is_model(here) else []


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
