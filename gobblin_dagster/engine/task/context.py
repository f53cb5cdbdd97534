"""The settings of a run and of each work unit, as tasks receive them: small, JSON, no live objects."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.secrets import give, hide_environment, hide_variables, remember
from gobblin_dagster.core.utils.import_target import find_modules_in
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.spec.job import JobSpec, SchemaContract


@dataclass(frozen=True, slots=True)
class RunContext:
    """The settings that all work units of a run share."""

    format_name: ClassVar[str] = "RunContext/1"

    job_json: str
    """The JobSpec as JSON."""
    run_id: str
    base_dir: str
    """Absolute folder that relative paths of the job file start from."""
    output_root: str
    """Absolute root of the job's output."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Values of environment variables in `job_json`, with the references that messages show instead."""
    allow: AllowLists = EVERYTHING
    """What the project allows its jobs to read and write; each task checks its job against it again."""
    python_path: tuple[str, ...] = ()
    """Folders in which the driver finds modules: a notebook may have added some."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values from the project's `secrets`, by the names in settings of the job such as `key_env`."""
    hidden_variables: tuple[str, ...] = ()
    """Names of environment variables whose values the driver hides, whatever file names them: user code of the job may
    show them."""

    @property
    def spec(self) -> JobSpec:
        """The job, parsed again at each call: keep the result."""
        return JobSpec.model_validate_json(self.job_json)

    @property
    def staging_root(self) -> str:
        """Absolute folder of everything that this run stages."""
        return staging_dir(self.output_root, self.run_id)

    def staging_dir(self, commit_id: str) -> str:
        """Return the absolute folder where this run stages one dataset."""
        return staging_dir(self.output_root, self.run_id, commit_id)

    def make_secrets_known(self) -> None:
        """Let this process hide the job's secrets and the environment's, and find those that settings name."""
        hide_environment()
        hide_variables(self.hidden_variables)
        remember({**self.secrets, **{value: f"${{{name}}}" for name, value in self.variables.items()}})
        give(self.variables, self.variables)

    def find_modules(self) -> None:
        """Let this process find the modules that the driver finds, those of the project folder first."""
        find_modules_in(self.base_dir)
        known = {"", *sys.path}
        sys.path.extend(folder for folder in self.python_path if folder not in known)

    def construct_context(self, spec: JobSpec, dataset_urn: str = "", branch: str | None = None) -> ConstructContext:
        """Return the context for a construct of the job; the branch is None before the fork."""
        contracts = {one.name: one.schema_contract or spec.schema_contract for one in spec.fork.branches}
        return ConstructContext(
            job=spec.job,
            base_dir=self.base_dir,
            dataset_urn=dataset_urn,
            branch=branch,
            evolves=contracts.get(branch or "") is SchemaContract.EVOLVE,
            block_bytes=spec.execution.block_bytes,
            run_id=self.run_id,
            allow=self.allow,
        )


@dataclass(frozen=True, slots=True)
class TaskInput:
    """One work unit with the facts of its dataset that it needs."""

    format_name: ClassVar[str] = "TaskInput/1"

    unit: WorkUnit
    commit_id: str
    """Part of the name of every file staged."""
    previous_schemas: Mapping[str, str] = field(default_factory=dict)
