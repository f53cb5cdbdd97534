"""Startpoint types of users: positions with a name, a version and JSON of their own, which sources may know.

A source knows a type if it has a method `visit_<kind>`; any other source refuses it by name. A stored startpoint of a
type that this program has not registered is kept as it is, and refused when a run would apply it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from gobblin_dagster.core.errors import StartpointError, UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
BUILT_IN = ("specific", "timestamp", "oldest", "upcoming")


class CustomPosition(ABC):
    """A position of a type that users add; immutable, compared by value, and able to be pickled.

    Source: samza-api `Startpoint`, which is open for types in the same way.
    """

    kind: ClassVar[str]
    """Name of the type, a word of `a-z`, digits and `_`; it is stored, so it stays."""
    version: ClassVar[int] = 1
    """Version of the stored form. Raise it if older programs would misread newer values."""

    @abstractmethod
    def to_json(self) -> Any:
        """Return the stored form, as JSON values."""

    @classmethod
    @abstractmethod
    def from_json(cls, raw: Any, version: int) -> Self:
        """Read what `to_json` of a version, this one or an older one, returned; raises ValueError or TypeError."""

    def apply(self, dataset_urn: str, source: object, context: Any) -> Any:
        """Return where a dataset begins; called on the driver, before the source plans.

        The default calls the source's method `visit_<kind>(dataset_urn, position, context)`. It returns what
        `StartpointResolver.resolve_startpoint` returns, or a built-in position, which the source then resolves.
        Override this method for a type that needs no source, such as the first instant of a month.

        Args:
            dataset_urn: the dataset.
            source: the job's source.
            context: the `SourceContext` that the source will plan with.

        Raises:
            StartpointError: the source does not know this type, or has no such position.

        Source: samza-api `Startpoint.apply`, `StartpointVisitor`.
        """
        visit = getattr(source, f"visit_{self.kind}", None)
        if visit is None:
            name = type(source).__name__
            problem = f"source {name} knows no startpoints of type {self.kind!r}: it has no method `visit_{self.kind}`"
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(self), problem=problem)
        return visit(dataset_urn, self, context)


@dataclass(frozen=True, slots=True)
class UnknownPosition(CustomPosition):
    """A stored position of a type, or of a version of it, that this program does not have."""

    name: str
    number: int
    value: Any

    def to_json(self) -> Any:
        return self.value

    @classmethod
    def from_json(cls, raw: Any, version: int) -> Self:
        raise TypeError("its type is not known")

    def apply(self, dataset_urn: str, source: object, context: Any) -> Any:
        problem = (
            f"this program has no startpoint type {self.name!r} of version {self.number}; import the module that "
            "registers it (`register_startpoint_type`)"
        )
        raise StartpointError(dataset_urn=dataset_urn, startpoint=str(self), problem=problem)

    def __hash__(self) -> int:
        return hash((self.name, self.number))

    def __str__(self) -> str:
        return f"{self.name} {self.value}"


_TYPES: dict[str, type[CustomPosition]] = {}
P = TypeVar("P", bound=type[CustomPosition])


def register_startpoint_type(cls: P) -> P:
    """Make a type of startpoints known, so that stored ones can be read; for use as a decorator.

    Register it in a module that the job loads anyway, such as that of its source.

    Raises:
        UsageError: the name is no word, a built-in type has it, or another class has registered it.
    """
    kind = getattr(cls, "kind", "")
    if not _NAME.fullmatch(kind) or kind in BUILT_IN:
        hint = f"Set `kind` to a word of a-z, digits and `_` other than {', '.join(BUILT_IN)}."
        raise UsageError(problem=f"Startpoint type {cls.__name__} has the name {kind!r}.", hint=hint)
    known = _TYPES.setdefault(kind, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        problem = f"Startpoint type {kind!r} is registered already, by {known.__module__}:{known.__qualname__}."
        raise UsageError(problem=problem, hint="Choose another name.")
    _TYPES[kind] = cls
    return cls


def startpoint_type(kind: str) -> type[CustomPosition] | None:
    """Return the registered type of a name; None if there is none."""
    return _TYPES.get(kind)


def custom_to_json(position: CustomPosition) -> dict[str, Any]:
    """Return the stored form of a position, with its type and version."""
    if isinstance(position, UnknownPosition):
        return {"kind": position.name, "version": position.number, "value": position.value}
    return {"kind": position.kind, "version": position.version, "value": position.to_json()}


def custom_from_json(raw: dict[str, Any]) -> CustomPosition:
    """Read what `custom_to_json` returned; raises ValueError or TypeError if the value does not fit its type."""
    kind, version, value = str(raw["kind"]), int(raw.get("version", 1)), raw.get("value")
    cls = _TYPES.get(kind)
    if cls is None or version > cls.version:
        return UnknownPosition(kind, version, value)
    return cls.from_json(value, version)
