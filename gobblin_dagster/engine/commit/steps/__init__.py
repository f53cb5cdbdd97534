"""Commit steps: the actions of a publication, each idempotent and verified by content.

`rename.py` moves staged files, `permissions.py` sets mode and group, `delete.py` lets snapshots expire, `custom.py`
runs steps of a user's package. `core/step_registry.py` reads stored steps, those of our publishers by name. The parts
of the commit transaction are in `transaction.py`. `core.traits.StepTraits` lists the traits that a step may declare.
"""

from importlib import import_module
from pkgutil import iter_modules

from gobblin_dagster.constructs.publishers import STEP_MODULES
from gobblin_dagster.core.step_registry import (
    declare_commit_steps,
    is_known_step,
    register_commit_step,
    step_from_json,
    step_to_json,
)
from gobblin_dagster.engine.commit.steps.custom import CustomStep, check_own_step, load_own_steps, plan_own_steps
from gobblin_dagster.engine.commit.steps.delete import DeleteFilesStep, MarkExpiredStep
from gobblin_dagster.engine.commit.steps.permissions import (
    Permissions,
    SetPermissionsStep,
    check_permissions,
)
from gobblin_dagster.engine.commit.steps.rename import (
    RenameFilesStep,
    RenameFileStep,
    is_rename,
    rename_steps,
    renames_of,
)

__all__ = [
    "CustomStep",
    "DeleteFilesStep",
    "MarkExpiredStep",
    "Permissions",
    "RenameFileStep",
    "RenameFilesStep",
    "SetPermissionsStep",
    "check_own_step",
    "check_permissions",
    "is_known_step",
    "is_rename",
    "load_own_steps",
    "plan_own_steps",
    "register_commit_step",
    "rename_steps",
    "renames_of",
    "step_from_json",
    "step_to_json",
]

# Every reader of a stored sequence imports this package, so each module in its folder registers its steps.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
declare_commit_steps(STEP_MODULES)
