"""Refuse `true` and `false` for numbers: pydantic alone reads them as 1 and 0."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError, model_validator
from pydantic_core import InitErrorDetails

_Place = tuple[str | int, ...]


class ExactNumbers(BaseModel):
    """A base of models: a field for a number takes no boolean, not inside of lists and mappings either.

    A field that is declared to take a boolean beside a number still takes one.
    """

    # Of the model, not of its fields: pydantic allows no such validator on a field that tells members of a union apart.
    @model_validator(mode="before")
    @classmethod
    def _booleans_are_no_numbers(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            details = [
                InitErrorDetails(type="float_type", loc=(name, *place), input=value)
                for name, field in cls.model_fields.items()
                for place, value in _booleans_for_numbers(field.annotation, given.get(name))
            ]
            if details:
                raise ValidationError.from_exception_data(cls.__name__, details)
        return given


def _booleans_for_numbers(annotation: Any, given: Any) -> Iterator[tuple[_Place, bool]]:
    """Yield each boolean inside a value whose place is declared as a number, with that place."""
    members = [*_members(annotation)]
    if isinstance(given, bool):
        if {int, float} & {*members} and not {bool, Any, object} & {*members}:
            yield (), given
        return
    for member in members:
        arguments = get_args(member)
        if isinstance(given, Mapping) and get_origin(member) is dict:
            inner = ((key, arguments[1], value) for key, value in given.items())
        elif isinstance(given, list | tuple) and get_origin(member) in (list, tuple):
            inner = ((at, arguments[0], value) for at, value in enumerate(given))
        else:
            continue
        for part, kind, value in inner:
            yield from (((part, *place), found) for place, found in _booleans_for_numbers(kind, value))


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value may have: the members of unions, without annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation
