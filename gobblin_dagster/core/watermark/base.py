"""The base of all watermark types, and the types by name.

Every type is made of named, ordered components, so that one arithmetic serves all: a long or a timestamp has the single
component `""`, a composite (Kafka partitions) has one per name, a set of files (`watermark.file_set`) one per file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, ClassVar, Self, TypeAlias

from gobblin_dagster.core.errors import CorruptRecordError, WatermarkTypeError
from gobblin_dagster.core.utils.import_target import load_target

Position: TypeAlias = int | str | date | datetime | tuple[Any, ...]
"""The value of one component; positions of one component are totally ordered."""


Ranges: TypeAlias = Mapping[str, tuple[tuple[Position, Position], ...]]
"""Disjoint sorted ranges `[low, high)` of positions by component."""


class Watermark(ABC):
    """A position in a dataset: everything before it was read, it is the next to read.

    To bring a type of your own, subclass, implement the two component methods, the two codecs and `__str__`, and set
    `type_name` to the class's own `module:Class`: under that name it stands in the state, and is imported by whoever reads
    it (docs/reference/watermarks.md). `<=` is the partial order by components. A type of very many components may also
    say how they are stored and shown (`encode`, `decode`, `anchors`, `settled`, `summary`, `describe`).

    Source: gobblin-api `org.apache.gobblin.source.extractor.Watermark`.
    Differs: positions are components with an order, so intervals and gaps need no type-specific comparator.
    """

    __slots__ = ()
    type_name: ClassVar[str]
    version: ClassVar[int] = 1
    """Of the stored form."""
    also_reads: ClassVar[tuple[int, ...]] = ()
    """Earlier versions that the codecs read too; others are refused."""

    @abstractmethod
    def components(self) -> Mapping[str, Position]:
        """Return the positions by component name."""

    @classmethod
    @abstractmethod
    def from_components(cls, components: Mapping[str, Position]) -> Self:
        """Make the watermark from positions by component name."""

    @classmethod
    @abstractmethod
    def position_to_json(cls, position: Position) -> int | str:
        """Write one position as JSON."""

    @classmethod
    @abstractmethod
    def position_from_json(cls, raw: int | str) -> Position:
        """Read one position; raises ValueError or TypeError where it is none."""

    @abstractmethod
    def __str__(self) -> str:
        """Show the watermark to people."""

    @classmethod
    def encode(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the stored form of values by component, given as JSON."""
        return values

    @classmethod
    def decode(cls, stored: dict[str, Any]) -> dict[str, Any]:
        """Undo `encode`; raises ValueError or TypeError."""
        return stored

    def anchors(self) -> Mapping[str, Position]:
        """Return the positions behind which nothing that failed may be forgotten, by component."""
        return self.components()

    @classmethod
    def settled(cls, ranges: Ranges) -> Ranges:
        """Return committed ranges in the shortest form that says the same; called after each addition."""
        return ranges

    @classmethod
    def summary(cls, components: Mapping[str, Position]) -> Watermark:
        """Return what stands for a dataset's position in plans, results and lists."""
        return cls.from_components(components)

    @classmethod
    def describe(cls, ranges: Ranges) -> str:
        """Show committed ranges to people."""
        make = cls.from_components
        return ", ".join(
            (f"{name}:" if name else "") + f"[{make({name: a})}, {make({name: b})})"
            for name, parts in sorted(ranges.items())
            for a, b in parts
        )

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, with type and version."""
        values = {name: self.position_to_json(value) for name, value in sorted(self.components().items())}
        return {"type": self.type_name, "version": self.version, "components": self.encode(values)}

    def __le__(self, other: Watermark) -> bool:
        theirs = same_type(self, other).components()
        return all(name in theirs and value <= theirs[name] for name, value in self.components().items())  # type: ignore[operator]  # one component has one type


def same_type(one: Watermark, other: Watermark) -> Watermark:
    """Return the second; raises WatermarkTypeError where it is of another type than the first."""
    if type(one) is not type(other):
        raise WatermarkTypeError(expected=one.type_name, got=other.type_name)
    return other


_TYPES: dict[str, type[Watermark]] = {}


def register_watermark_type(cls: type[Watermark]) -> type[Watermark]:
    """Make a type loadable from stored state; refuses a second class of the same name."""
    known = _TYPES.setdefault(cls.type_name, cls)
    if known is not cls:
        raise WatermarkTypeError(expected=f"{known.__module__}.{known.__qualname__}", got=cls.type_name)
    return cls


def watermark_type(name: str) -> type[Watermark]:
    """Return the type of that name, a registered one or a class `module:Class`; raises WatermarkTypeError."""
    if name not in _TYPES and ":" in name:
        # A Spark task and `gobblin state list` read watermarks whose source nobody has imported.
        register_watermark_type(_imported(name))
    try:
        return _TYPES[name]
    except KeyError:
        expected = "one of " + ", ".join(sorted(_TYPES)) + " or module:Class"
        raise WatermarkTypeError(expected=expected, got=name) from None


def _imported(name: str) -> type[Watermark]:
    try:
        cls = load_target(name)
    except ImportError as error:
        problem = f"cannot be loaded: {error}. Install its package, or put its module into the project folder"
        raise WatermarkTypeError(expected="a subclass of Watermark", got=name, problem=problem) from error
    if not (isinstance(cls, type) and issubclass(cls, Watermark)) or cls.type_name != name:
        problem = f"is no subclass of Watermark whose `type_name` is {name!r}"
        raise WatermarkTypeError(expected="a subclass of Watermark", got=name, problem=problem)
    return cls


def watermark_from_json(raw: Any) -> Watermark:
    """Read what `Watermark.to_json` wrote.

    Raises:
        CorruptRecordError: the record has not the stored form, or a newer version of it.
        WatermarkTypeError: its type is not registered.
    """
    cls, body = typed_json(raw, "components")
    try:
        values = cls.decode(body)
        return cls.from_components({name: cls.position_from_json(value) for name, value in values.items()})
    except (TypeError, ValueError, KeyError) as error:
        raise CorruptRecordError(what="A stored watermark", problem=str(error)) from error


def typed_json(raw: Any, field: str) -> tuple[type[Watermark], dict[str, Any]]:
    """Check the envelope of a stored watermark or of stored ranges."""
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str) or not isinstance(raw.get(field), dict):
        raise CorruptRecordError(what="A stored watermark", problem=f"expected type and {field}, got {str(raw)[:80]!r}")
    cls = watermark_type(raw["type"])
    if raw.get("version") not in (cls.version, *cls.also_reads):
        raise CorruptRecordError(
            what="A stored watermark", problem=f"expected version {cls.version}, got {raw.get('version')!r}"
        )
    return cls, raw[field]
