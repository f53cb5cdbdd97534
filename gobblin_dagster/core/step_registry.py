"""The registry of commit step types: how a stored step becomes an object again.

A class is registered when its module is imported. A module that is slow to import, or that a stored sequence may need
after no job names it any more, is declared by name instead: it is imported when a stored sequence holds one of its
steps.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.errors import CorruptRecordError, UsageError

StepLoader = Callable[[Mapping[str, Any]], CommitStep]
T = TypeVar("T", bound=type[CommitStep])
_LOADERS: dict[tuple[str, int], tuple[type[CommitStep], StepLoader]] = {}
_MODULES: dict[str, str] = {}
"""Declared modules, by the `type_name` of the step that each registers."""


def register_commit_step(cls: T) -> T:
    """Make a step type loadable from stored sequences; usable as a class decorator.

    The class needs `type_name`, `version` and a classmethod `from_json(fields)` that reads what `to_json` wrote. Keep
    old versions registered: a sequence may be stored before an upgrade and finished after it.

    Raises:
        UsageError: another class has this name and version, or the class has no `from_json`.
    """
    loader = getattr(cls, "from_json", None)
    if not callable(loader):
        raise UsageError(
            problem=f"Commit step {cls.__qualname__} has no from_json.",
            hint="Add `@classmethod def from_json(cls, fields)`.",
        )
    known, _ = _LOADERS.setdefault((cls.type_name, cls.version), (cls, loader))
    if known is not cls:
        owner = f"{known.__module__}.{known.__qualname__}"
        raise UsageError(
            problem=f"Commit step {cls.type_name!r} version {cls.version} is already registered by {owner}.",
            hint="Choose another type_name, or raise the version.",
        )
    return cls


def declare_commit_steps(modules: Mapping[str, str]) -> None:
    """Declare which module to import for a stored step of a type that is not registered yet.

    Args:
        modules: dotted module names by `type_name`. Importing the module must register the type in all versions that
            may be stored. The import must work without optional packages; import these in `verify` and `execute`.
    """
    _MODULES.update(modules)


def step_to_json(step: CommitStep) -> dict[str, Any]:
    """Return a step with its type and version."""
    return {"type": step.type_name, "version": step.version, **step.to_json()}


def is_known_step(raw: Any) -> bool:
    """Return whether the type and version of a stored step are registered.

    True for a value that is no step at all: `step_from_json` raises an error that says so.
    """
    return not isinstance(raw, Mapping) or _known(raw.get("type", ""), raw.get("version", 0)) is not None


def step_from_json(raw: Any) -> CommitStep:
    """Read what `step_to_json` wrote.

    Raises:
        CorruptRecordError: the type or version is not registered, or the fields do not fit.
    """
    if not isinstance(raw, Mapping):
        raise CorruptRecordError(what="A stored commit step", problem=f"expected an object, got {str(raw)[:80]!r}")
    known = _known(raw.get("type", ""), raw.get("version", 0))
    if known is None:
        raise CorruptRecordError(
            what="A stored commit step",
            problem=f"type {raw.get('type')!r} version {raw.get('version')!r} is not registered in this program",
        )
    try:
        return known[1]({key: value for key, value in raw.items() if key not in {"type", "version"}})
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecordError(what=f"A stored commit step {raw['type']!r}", problem=repr(error)) from error


def _known(type_name: str, version: int) -> tuple[type[CommitStep], StepLoader] | None:
    if (type_name, version) not in _LOADERS and type_name in _MODULES:
        importlib.import_module(_MODULES[type_name])
    return _LOADERS.get((type_name, version))
