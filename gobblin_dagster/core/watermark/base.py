"""The base class of all watermark types, and the registry of types by name.

Every watermark is made of named components with ordered values, so that the same arithmetic works for all types: a
long or a timestamp has the single component `""`, a composite (Kafka partitions) has one component per name, a set of
files (`watermark.file_set`) one per file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, ClassVar, Self, TypeAlias

from gobblin_dagster.core.errors import CorruptRecordError, WatermarkTypeError
from gobblin_dagster.core.utils.import_target import load_target

Position: TypeAlias = int | str | date | datetime | tuple[Any, ...]
"""The value of one component; all values of one component can be compared with `<`."""


Ranges: TypeAlias = Mapping[str, tuple[tuple[Position, Position], ...]]
"""Disjoint sorted ranges `[low, high)` of positions by component."""


class Watermark(ABC):
    """A position in a dataset: everything before it was read, and it is the next position to read.

    To write a type of your own, make a subclass (a frozen dataclass), implement `components`, `from_components`,
    `position_to_json`, `position_from_json` and `__str__`, and set `type_name` to `module:Class`, the place of the
    class. The state stores this name, and every program that reads the state imports the class by it
    (docs/reference/watermarks.md). A type with very many components may also change how these are stored and shown:
    `encode`, `decode`, `anchors`, `settled`, `summary`, `describe`.

    `a <= b` is true if each component of `a` is also in `b` and not greater there. Called on the driver and in Spark
    tasks; values must be hashable and picklable.

    Source: gobblin-api `org.apache.gobblin.source.extractor.Watermark`.
    Differs: positions are components with an order, so intervals and gaps need no comparator of the type's own.
    """

    __slots__ = ()
    type_name: ClassVar[str]
    """Name in stored state; never change it."""
    version: ClassVar[int] = 1
    """Version of the stored form."""
    is_layered: ClassVar[bool] = False
    """Whether committed ranges are stored in layers (`core.watermark.layers`), for types of very many components."""
    also_reads: ClassVar[tuple[int, ...]] = ()
    """Earlier versions of the stored form that this class can read; it refuses others."""

    @abstractmethod
    def components(self) -> Mapping[str, Position]:
        """Return the positions by component name."""

    @classmethod
    @abstractmethod
    def from_components(cls, components: Mapping[str, Position]) -> Self:
        """Make the watermark from positions by component name; raises ValueError or TypeError if they do not fit."""

    @classmethod
    @abstractmethod
    def position_to_json(cls, position: Position) -> int | str:
        """Return the stored form of one position: a number or a text."""

    @classmethod
    @abstractmethod
    def position_from_json(cls, raw: int | str) -> Position:
        """Read what `position_to_json` returned; raises ValueError or TypeError if it is no position."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the watermark as text for people."""

    @classmethod
    def encode(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the stored form of all components.

        Args:
            values: by component, the JSON of `position_to_json`; for committed ranges a list of `[low, high]` pairs of
                it.
        """
        return values

    @classmethod
    def decode(cls, stored: dict[str, Any]) -> dict[str, Any]:
        """Return the `values` that `encode` was given; raises ValueError or TypeError if `stored` is damaged."""
        return stored

    def anchors(self) -> Mapping[str, Position]:
        """Return the positions, by component, at which committed ranges of a new dataset begin.

        With the dataset's first low recorded, a failed first work unit leaves a gap instead of being skipped. Override
        it if components are not positions on a line.
        """
        return self.components()

    @classmethod
    def settled(cls, ranges: Ranges) -> Ranges:
        """Return equal committed ranges in the shortest form; called after each addition."""
        return ranges

    @classmethod
    def summary(cls, components: Mapping[str, Position]) -> Watermark:
        """Return the watermark that plans, results and lists show; a short form if there are very many components."""
        return cls.from_components(components)

    @classmethod
    def describe(cls, ranges: Ranges) -> str:
        """Return committed ranges as text for people."""
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
        theirs: Mapping[str, Any] = same_type(self, other).components()
        return all(name in theirs and value <= theirs[name] for name, value in self.components().items())


def same_type(one: Watermark, other: Watermark) -> Watermark:
    """Return `other`; raise WatermarkTypeError if both are not of the same type."""
    if type(one) is not type(other):
        raise WatermarkTypeError(expected=one.type_name, got=other.type_name)
    return other


_TYPES: dict[str, type[Watermark]] = {}


def register_watermark_type(cls: type[Watermark]) -> type[Watermark]:
    """Register a type, so that stored state of this type can be read; usable as a class decorator.

    Raises:
        WatermarkTypeError: another class is registered under the same `type_name`.
    """
    known = _TYPES.setdefault(cls.type_name, cls)
    if known is not cls:
        raise WatermarkTypeError(expected=f"{known.__module__}.{known.__qualname__}", got=cls.type_name)
    return cls


def watermark_type(name: str) -> type[Watermark]:
    """Return the type with this name; import it if the name is `module:Class` and not registered yet.

    Raises:
        WatermarkTypeError: the type is not registered and cannot be imported.
    """
    if name not in _TYPES and ":" in name:
        # A Spark task and `gobblin state list` read watermarks without having imported the source that brings the type.
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
        problem = f"is not a subclass of Watermark with `type_name` {name!r}"
        raise WatermarkTypeError(expected="a subclass of Watermark", got=name, problem=problem)
    return cls


def watermark_from_json(raw: Any) -> Watermark:
    """Read what `Watermark.to_json` wrote.

    Raises:
        CorruptRecordError: the record is damaged, or its version is not one that the type reads.
        WatermarkTypeError: its type is not registered and cannot be imported.
    """
    cls, body = typed_json(raw, "components")
    try:
        values = cls.decode(body)
        return cls.from_components({name: cls.position_from_json(value) for name, value in values.items()})
    except (TypeError, ValueError, KeyError) as error:
        raise CorruptRecordError(what="A stored watermark", problem=str(error)) from error


def typed_json(raw: Any, field: str) -> tuple[type[Watermark], dict[str, Any]]:
    """Check type and version of a stored watermark or of stored ranges; return the type and the value of `field`.

    Raises:
        CorruptRecordError, WatermarkTypeError: as `watermark_from_json`.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str) or not isinstance(raw.get(field), dict):
        raise CorruptRecordError(what="A stored watermark", problem=f"expected type and {field}, got {str(raw)[:80]!r}")
    cls = watermark_type(raw["type"])
    if raw.get("version") not in (cls.version, *cls.also_reads):
        raise CorruptRecordError(
            what="A stored watermark", problem=f"expected version {cls.version}, got {raw.get('version')!r}"
        )
    return cls, raw[field]
