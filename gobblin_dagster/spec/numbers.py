"""Refuse `true` and `false` for numbers; pydantic would accept them as 1 and 0."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError, model_validator
from pydantic_core import InitErrorDetails

_Place = tuple[str | int, ...]


class ExactNumbers(BaseModel):
    """A base of models that refuse booleans for number fields, also inside of lists and mappings.

    A field whose type allows both numbers and booleans accepts booleans.
    """

    # A validator of the model, because pydantic does not allow one on a field that is the discriminator of a union.
    @model_validator(mode="before")
    @classmethod
    def _booleans_are_no_numbers(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            details = [
                InitErrorDetails(type="float_type", loc=(name, *place), input=value)
                for name, value in given.items()
                if not isinstance(value, str) and (field := cls.model_fields.get(name))
                for place, value in _booleans_for_numbers(field.annotation, value)
            ]
            if details:
                raise ValidationError.from_exception_data(cls.__name__, details)
        return given


def _booleans_for_numbers(annotation: Any, given: Any) -> Iterator[tuple[_Place, bool]]:
    """Yield (place, boolean) for each boolean in a value at a place that is declared as a number."""
    if not isinstance(given, bool | list | tuple | dict | Mapping):  # a mapping mostly is a dict, found sooner
        return
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
    """Yield the types that a value may have: members of unions one by one, without annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation
