"""Custom steps of a user's package: declared in `commit.steps`, run after the renames and before COMMIT, in order.

A type is a name of the entry-point group `gobblin_dagster.commit_steps`, or `module:Class` for a class of the project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol, Self, cast

from pydantic import BaseModel, ValidationError

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.errors import InvalidSpecError, SpecFault, UsageError
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.traits import StepTraits, traits_of
from gobblin_dagster.core.utils.import_target import load_target
from gobblin_dagster.spec.job import ConstructSpec

ENTRY_POINT_GROUP = "gobblin_dagster.commit_steps"


class CustomStep(CommitStep, Protocol):
    """Methods that a class named in `commit.steps` has in addition to those of a `CommitStep`.

    `plan` is called on the driver, once per dataset and run, before anything is stored; it must change nothing.
    `verify` and `execute` are called before COMMIT and again after a crash, maybe by another process. So a second
    `execute` must do no harm, and `verify` should return True after the first.

    If staged files are lost, a sequence with such a step is not undone automatically: a person decides (`gobblin commit
    abandon`). A class may declare traits that relax this (`core.traits.StepTraits`).
    """

    Options: ClassVar[type[BaseModel]]
    """Frozen model that refuses unknown keys."""

    @classmethod
    def plan(cls, options: Any, sequence: CommitSequence) -> Self:
        """Return the step for a sequence that holds all renames and published files."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the step from the fields of `to_json`; raises KeyError, TypeError or ValueError for other fields."""


_METHODS = ("plan", "from_json", "verify", "execute", "to_json", "describe")


def load_own_steps(specs: Sequence[ConstructSpec]) -> list[type[CustomStep]]:
    """Import the classes of a job's custom steps, and make them loadable from stored sequences.

    Raises:
        UsageError: a type is unknown, cannot be imported, or is not a step.
    """
    return [_load(spec.type) for spec in specs]


def check_own_step(type_name: str, options: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    """Return (place inside the step, problem) of each fault of a declaration."""
    try:
        _load(type_name).Options.model_validate(dict(options))
    except UsageError as error:
        return [(("type",), str(error))]
    except ValidationError as error:
        return [(fault["loc"], fault["msg"]) for fault in error.errors(include_url=False)]
    return []


def plan_own_steps(specs: Sequence[ConstructSpec], sequence: CommitSequence) -> tuple[CommitStep, ...]:
    """Return a job's custom steps for one sequence, in order.

    Raises:
        UsageError: as `load_own_steps`, or a trait of a step has a value of a wrong type.
        InvalidSpecError: the options do not fit; the error lists all faults.
    """
    steps: list[CommitStep] = []
    for number, (spec, cls) in enumerate(zip(specs, load_own_steps(specs), strict=True)):
        if faults := check_own_step(spec.type, spec.options):
            where = f"commit.steps[{number}]"
            raise InvalidSpecError(
                file=f"Job {sequence.job!r}",
                faults=tuple(SpecFault(".".join([where, *map(str, loc)]), problem) for loc, problem in faults),
            )
        step = cls.plan(cls.Options.model_validate(spec.options), sequence)
        traits_of(step, StepTraits)  # refuses values of wrong types before anything is stored
        steps.append(step)
    return tuple(steps)


def _load(type_name: str) -> type[CustomStep]:
    targets = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    target = type_name if ":" in type_name else targets.get(type_name)
    if target is None:
        raise UsageError(
            problem=f"There is no commit step {type_name!r}.",
            hint=f"Installed: {', '.join(sorted(targets)) or 'none'}; or module:Class for your own.",
        )
    try:
        cls = load_target(target)
    except ImportError as error:
        raise UsageError(
            problem=f"The commit step {type_name!r} cannot be loaded from {target}: {error}.",
            hint="Install its package, or correct the name; modules of the project must be in the project folder.",
        ) from error
    missing = [name for name in _METHODS if not callable(getattr(cls, name, None))]
    missing += [name for name in ("type_name", "version", "Options") if not hasattr(cls, name)]
    if missing:
        raise UsageError(
            problem=f"The commit step {type_name!r} lacks {', '.join(missing)}.",
            hint=f"See {CustomStep.__module__}.{CustomStep.__name__}.",
        )
    return register_commit_step(cast("type[CustomStep]", cls))
