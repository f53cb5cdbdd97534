"""The identity compiler: each template of a flow becomes one job, one after the other, on the first executor.

A pure function of the flow, the templates and the executors: compiled twice, the same DAG comes out, byte for byte.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.engine.validation import check_construct
from gobblin_dagster.service.catalog.flow_config import EXECUTION_ID, SETTINGS, FlowSettings
from gobblin_dagster.service.catalog.templates import (
    Template,
    TemplateCatalog,
    TemplateError,
    job_document,
    missing_and_unknown,
)
from gobblin_dagster.service.model import Dag, DagJob, FlowConfig, FlowId
from gobblin_dagster.spec.load import job_text_faults

_SIMPLE = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*")
_LONGEST = 100
_NOT_PARAMETERS = SETTINGS | {EXECUTION_ID}
_RESERVED = ("flow.", "job.", "gobblin.", "user.")
"""Properties of Gobblin's that no template takes: kept, and left alone."""


def job_name(flow: FlowId, template: str) -> str:
    """Return the name under which a flow's job keeps its state: readable, and never that of another flow's job.

    Example:
        >>> job_name(FlowId("shop", "orders"), "to_lake")
        'shop__orders__to_lake'
        >>> job_name(FlowId("shop/eu", "orders"), "to_lake")
        'shop_eu__orders__to_lake__x3c9d3fd5b08d'
    """
    parts = (flow.group, flow.name, template)
    plain = "__".join(parts)
    if all(_SIMPLE.fullmatch(part) for part in parts) and len(plain) <= _LONGEST:
        return plain
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    words = [re.sub(r"[^A-Za-z0-9]+", "_", part).strip("_")[:24] or "x" for part in parts]
    if not words[0][0].isalpha():
        words[0] = f"f{words[0]}"
    return "__".join([*words, f"x{digest}"])


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

    def compile(self, config: FlowConfig) -> Dag:
        """Return the flow's jobs.

        Raises:
            FlowCompileError: with all reasons at once.
        """
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
        values = {name: value for name, value in config.properties.items() if name not in _NOT_PARAMETERS}
        if not reasons:
            reasons += _value_faults(templates, values)
        settings = FlowSettings.stored(config.properties)
        jobs: list[DagJob] = []
        for template in templates if not reasons else ():
            name = job_name(config.id, template.spec.template)
            if any(job.name == name for job in jobs):
                reasons.append(f"two templates are named {template.spec.template!r}")
                continue
            own = {key: value for key, value in values.items() if key in template.spec.parameters}
            try:
                body = job_document(template.fill(own), name)
            except TemplateError as error:
                reasons.append(f"template {template.uri}: {error}")
                continue
            reasons += [f"template {template.uri}: {text}" for text in _job_faults(body, self._allow)]
            parents = (jobs[-1].name,) if jobs else ()
            start_within_s = int(settings.start_within.total_seconds()) if settings.start_within else None
            jobs.append(DagJob(name, self._executors[0], body, parents, settings.max_attempts, start_within_s))
        if reasons:
            raise FlowCompileError(flow=str(config.id), reasons=tuple(reasons))
        return Dag(tuple(jobs))


def _value_faults(templates: Sequence[Template], values: Mapping[str, str]) -> list[str]:
    reasons = [reason for template in templates for reason in missing_and_unknown(template.spec, values)]
    declared = {name for template in templates for name in template.spec.parameters}
    for name in values:
        if name not in declared and not name.startswith(_RESERVED):
            known = ", ".join(sorted(declared)) or "none"
            reasons.append(f"no template declares the parameter {name[:80]!r}; declared: {known}")
    return reasons


def _job_faults(body: str, allow: AllowLists) -> list[str]:
    """Return the faults of a job that executors would find too, as far as they do not depend on the environment."""
    return [f"{fault.path}: {fault.problem}" for fault in job_text_faults(body.encode(), check_construct, allow)]
