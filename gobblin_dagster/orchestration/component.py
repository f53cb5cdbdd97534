"""GobblinJobComponent: jobs in a Dagster components project (`defs.yaml`), whose faults are reported with lines.

No `from __future__ import annotations` here: Dagster makes the YAML's schema from the annotations.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import ValidationError

from gobblin_dagster.constructs.registry import registry
from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.core.errors import InvalidSpecError, SpecFault, UsageError
from gobblin_dagster.core.secrets import remember
from gobblin_dagster.engine.allowed import require_allowed
from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.orchestration.definitions import job_definitions, project_definitions
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.scaffold import JobScaffolder
from gobblin_dagster.orchestration.translator import BranchData, GobblinTranslator
from gobblin_dagster.spec.document import show_loc
from gobblin_dagster.spec.explain import explain
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import (
    GOBBLIN_SUFFIXES,
    GobblinFiles,
    construct_faults,
    find_project,
    load_job,
    load_project,
    texts,
)
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.spec.secret_values import Variables
from gobblin_dagster.spec.secrets import is_shown


def _resolve_folder(context: dg.ResolutionContext, value: str | None) -> Path | None:
    return context.resolve_source_relative_path(value) if value else None


def _resolve_job(context: dg.ResolutionContext, model: Any) -> JobSpec | Path | str | None:
    """Return an inline job as a checked JobSpec, a job file as a path, and a name unchanged."""
    context = context.at_path("job")
    value: Any = context.resolve_value(model.job) if isinstance(model.job, str) else model.job
    if isinstance(value, str):
        is_file = value.lower().endswith((".yaml", ".yml", *GOBBLIN_SUFFIXES))
        return context.resolve_source_relative_path(value) if is_file else value
    if value is None:
        return None
    folder = _resolve_folder(context, context.resolve_value(model.project))
    try:  # Before the job is checked, which imports the modules that it names.
        root = folder or find_project(context.resolve_source_relative_path("."))
        allow = load_project(root).allow.lists
    except UsageError:
        allow = EVERYTHING  # an inline job needs no project
    return _inline_job(context, value, allow)


@dg.scaffold_with(JobScaffolder)
@dataclass
class GobblinJobComponent(dg.Component, dg.Resolvable):
    """Ingestion jobs of gobblin_dagster: a project folder, one of its jobs, a job file, or a job written here.

    Example (`defs.yaml`):

        type: gobblin_dagster.orchestration.GobblinJobComponent
        attributes:
          project: ../../demo
          job: flights
    """

    project: Annotated[
        Path | None,
        dg.Resolver(
            _resolve_folder,
            model_field_type=str | None,
            description="Folder with a gobblin.yaml, relative to this file; default: the nearest one above it, if any.",
        ),
    ] = None
    job: Annotated[
        Any,  # JobSpec, Path, name or None; Dagster accepts only its own pydantic models here
        dg.Resolver.from_model(
            _resolve_job,
            model_field_type=str | dict[str, Any] | None,
            description="Name of a job of the project, a job file, or the job itself; default: all jobs.",
        ),
    ] = None
    checks: Annotated[
        bool | Literal["failures"],
        dg.Resolver.default(
            description="Show policies as asset checks: all, none, or `failures`. With very many datasets their events "
            "cost most."
        ),
    ] = True

    def get_asset_spec(self, data: BranchData) -> dg.AssetSpec:
        """Return the asset spec of a branch; override it like the method of GobblinTranslator."""
        return GobblinTranslator().get_asset_spec(data)

    def get_upstream_specs(self, job: JobSpec) -> list[dg.AssetSpec]:
        """Return the external assets that a job reads from; override it like the method of GobblinTranslator."""
        return GobblinTranslator().get_upstream_specs(job)

    @without_secrets()
    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return assets, jobs and sensors.

        Raises:
            InvalidSpecError, UsageError: the project or a job cannot be loaded.
        """
        project = self._open(context.path)
        match self.job:
            case None:
                return project_definitions(project, translator=_ComponentTranslator(self), checks=self.checks)
            case JobSpec():
                jobs = (self.job,)
            case Path():
                jobs_folder = project.root / project.spec.jobs
                files = GobblinFiles(jobs_folder, project.spec.classes, project.spec.allow.lists, project.root)
                variables = Variables(os.environ, project.spec.secrets, project.root)
                jobs = (load_job(self.job, registry.check, variables, files).spec,)
            case str():
                jobs = (project.job(self.job),)
            case other:
                raise UsageError(
                    problem=f"`job` is a {type(other).__name__}; expected a JobSpec, a path or the name of a job."
                )
        for job in jobs:
            require_allowed(job, str(project.root), project.spec.allow.lists)
        translator = _ComponentTranslator(self)
        return dg.Definitions.merge(
            *(job_definitions(project, job, translator=translator, checks=self.checks) for job in jobs)
        )

    def _open(self, here: Path) -> Project:
        folder = here if here.is_dir() else here.parent
        if self.project is not None:
            return open_project(self.project)
        try:
            return open_project(find_project(folder))
        except UsageError:
            if self.job is None or isinstance(self.job, str):
                raise
        # An inline job or job file needs no project: state store and Spark have the default settings.
        return Project(folder.resolve(), ProjectSpec(project="jobs"))


class _ComponentTranslator(GobblinTranslator):
    """Calls the component, so that a subclass of the component can override `get_asset_spec`."""

    def __init__(self, component: GobblinJobComponent) -> None:
        self._component = component

    def get_asset_spec(self, data: BranchData) -> dg.AssetSpec:
        return self._component.get_asset_spec(data)

    def get_upstream_specs(self, job: JobSpec) -> list[dg.AssetSpec]:
        return self._component.get_upstream_specs(job)


def _inline_job(context: dg.ResolutionContext, raw: Mapping[str, Any], allow: AllowLists) -> JobSpec:
    """Check a job written into a `defs.yaml`; raises InvalidSpecError with all faults and their lines."""
    data = _render(context, raw)
    # What a template brought in is no literal.
    written = {loc: _TEMPLATE.sub("${TEMPLATE}", text) for loc, text in texts(raw, ()) if "{{" in text}
    found = list(construct_faults(data, registry.check, allow, written))
    spec = None
    try:
        spec = JobSpec.model_validate(data)
    except ValidationError as error:
        found += explain(error, JobSpec)
    if spec is not None and not found:
        return spec
    tree = context.source_position_tree
    places = [tree.lookup_closest_and_path([*context.path, *loc], None)[0] if tree else None for loc, _ in found]
    faults = tuple(
        SpecFault(show_loc(("job", *loc)), problem, place.start.line if place else None)
        for (loc, problem), place in zip(found, places, strict=True)
    )
    raise InvalidSpecError(file=tree.position.filename if tree else "defs.yaml", faults=faults)


_TEMPLATE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_VARIABLE = re.compile(r"\benv\s*[.\[(]\s*['\"]?(\w+)")
"""A variable in a template of Dagster: `env.NAME`, `env('NAME')`."""


def _render(context: dg.ResolutionContext, value: Any, loc: tuple[str | int, ...] = ()) -> Any:
    """Resolve Dagster's templates (`{{ env.HOST }}`) only in texts that hold one.

    Other texts stay as they are: Dagster would read the text `"08"` as YAML again and make a number of it. Values of
    variables are hidden as those of `${NAME}` are in job files.
    """
    if isinstance(value, Mapping):
        return {key: _render(context.at_path(key), item, (*loc, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_render(context.at_path(index), item, (*loc, index)) for index, item in enumerate(value)]
    if not isinstance(value, str) or "{{" not in value:
        return value
    if not is_shown(loc):
        found = {name: os.environ.get(name, "") for name in _VARIABLE.findall(value)}
        remember({text: f"${{{name}}}" for name, text in found.items()})
    return context.resolve_value(value)
