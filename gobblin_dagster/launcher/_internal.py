"""The only module of the launcher that uses Dagster's internals: what a run launcher needs is not exported.

`tests/unit/launcher/test_internal.py` holds what we rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
from dagster._cli.api import execute_run_command
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.origin import JobPythonOrigin
from dagster._core.secrets.env_file import get_env_var_dict
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import deserialize_value, serialize_value
from dagster._serdes.config_class import ConfigurableClassData

__all__ = [
    "CheckRunHealthResult",
    "ConfigurableClassData",
    "JobPythonOrigin",
    "LaunchRunContext",
    "WorkerStatus",
]


def order_of(run: dg.DagsterRun, origin: JobPythonOrigin, instance: dg.DagsterInstance) -> str:
    """Return what a worker needs to execute a run: where its code is, its id, and how to open the instance; as JSON."""
    return serialize_value(ExecuteRunArgs(origin, run.run_id, instance.get_ref()))


def execute(order: str) -> None:
    """Execute a run as `dagster api execute_run` does, which is how launchers in containers start runs.

    It takes SIGINT as the order to end the run; call it in the main thread. A run that cannot begin, such as one whose
    code cannot be loaded, is reported as failed.
    """
    # Dagster keeps the newest job; the next run may have the same one, from job files that have changed.
    ReconstructableJob.get_definition.cache_clear()
    ReconstructableJob.get_repository_definition.cache_clear()
    if execute_run_command.callback is None:
        raise RuntimeError("this version of Dagster has no `dagster api execute_run`")
    execute_run_command.callback(input_json=order, compressed_input_json=None)


def report_unended(order: str, problem: str) -> None:
    """Report the run of an order as failed, if it has not ended."""
    args = deserialize_value(order, ExecuteRunArgs)
    if args.instance_ref is not None:
        with dg.DagsterInstance.from_ref(args.instance_ref) as instance:
            run = instance.get_run_by_id(args.run_id)
            if run is not None and not run.is_finished:
                instance.report_run_failed(run, problem)


def is_cold(run: dg.DagsterRun) -> bool:
    """Return whether Dagster's own launcher has started a run."""
    return GRPC_INFO_TAG in run.tags


def module_of(origin: JobPythonOrigin) -> str | None:
    """Return the module that holds a run's definitions; None if it is a file or a package."""
    pointer = origin.get_repo_pointer()
    return pointer.module if isinstance(pointer, ModuleCodePointer) else None


def tags_of_steps(run: dg.DagsterRun, instance: dg.DagsterInstance) -> frozenset[str]:
    """Return the names of all tags of a run's ops."""
    if run.execution_plan_snapshot_id is None:
        return frozenset()
    steps = instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).steps
    return frozenset(name for step in steps for name in step.tags or ())


def injected(instance: dg.DagsterInstance, location: str) -> Mapping[str, str]:
    """Return the variables that Dagster sets in runs of a code location: those of `.env` here, and of its settings."""
    loader = instance._secrets_loader
    return {**get_env_var_dict(str(Path.cwd())), **(loader.get_secrets_for_environment(location) if loader else {})}
