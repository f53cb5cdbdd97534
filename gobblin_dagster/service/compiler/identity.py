"""The identity compiler: each template of a flow becomes one job, one after the other, on the first executor.

A pure function of the flow, the templates and the executors: compiled twice, the same DAG comes out, byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.service.catalog.templates import Template, TemplateCatalog, TemplateError, missing_and_unknown
from gobblin_dagster.service.compiler.explanation import Explanation
from gobblin_dagster.service.compiler.jobs import fill_job, job_name, parameter_values, undeclared
from gobblin_dagster.service.model import Dag, DagJob, FlowConfig


class IdentityCompiler:
    """Makes jobs of a flow's templates.

    Args:
        templates: where templates come from.
        executors: names of executors; the first one runs the jobs.
        allow: what jobs may use; default: everything.

    Source: gobblin-service `IdentityFlowToJobSpecCompiler`. Differs: several templates are several jobs, in order.
    """

    def __init__(self, templates: TemplateCatalog, executors: Sequence[str], allow: AllowLists = EVERYTHING) -> None:
        self._allow = allow
        self._templates = templates
        self._executors = tuple(executors)

    def compile(self, config: FlowConfig, former: Collection[str] = ()) -> Dag:
        """Return the flow's jobs; raises FlowCompileError with all reasons at once."""
        return self.explain(config).require_dag(config.id)

    def explain(self, config: FlowConfig, former: Collection[str] = ()) -> Explanation:
        """Return the flow's jobs, or all reasons why it has none."""
        reasons: list[str] = []
        if not self._executors:
            reasons.append("no executor can run jobs")
        templates: list[Template] = []
        for uri in config.template_uris.split(","):
            if not uri.strip():
                reasons.append(f"the flow's list of templates {config.template_uris[:80]!r} names no template")
                continue
            try:
                templates.append(self._templates.load(uri.strip()))
            except TemplateError as error:
                reasons.append(str(error))
        values = parameter_values(config)
        if not reasons:
            for template in templates:
                reasons += missing_and_unknown(template.spec, values, template.place)
            reasons += undeclared({name for template in templates for name in template.spec.parameters}, values)
        jobs: list[DagJob] = []
        for template in templates if not reasons else ():
            name = job_name(config.id, template.spec.template)
            if any(job.name == name for job in jobs):
                reasons.append(f"two templates are named {template.spec.template!r}")
                continue
            parents = [jobs[-1].name] if jobs else []
            job, faults = fill_job(config, name, template, values, self._executors[0], parents, self._allow)
            reasons += faults
            if job is not None:
                jobs.append(job)
        return Explanation(None if reasons else Dag(tuple(jobs)), tuple(reasons))
