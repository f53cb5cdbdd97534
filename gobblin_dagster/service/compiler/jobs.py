"""Jobs of flows: their names, and how a template becomes one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.engine.validation import check_construct
from gobblin_dagster.service.catalog.flow_config import EXECUTION_ID, KEPT, SETTINGS, FlowSettings
from gobblin_dagster.service.catalog.templates import (
    GobblinFlowTemplate,
    Template,
    TemplateError,
    job_document,
    keys_body,
)
from gobblin_dagster.service.model import DagJob, FlowConfig, FlowId
from gobblin_dagster.spec.load import job_text_faults

_SIMPLE = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*")
_LONGEST = 63
"""Characters of a job's name at most, as for all names of jobs."""
_NOT_PARAMETERS = SETTINGS | {EXECUTION_ID}


def job_name(flow: FlowId, *parts: str) -> str:
    """Return the name under which a flow's job keeps its state: readable, and never that of another flow's job.

    Args:
        flow: the flow.
        parts: what tells the job from the flow's other jobs: its template, or its edge and sub-path.

    Example:
        >>> job_name(FlowId("shop", "orders"), "to_lake")
        'shop__orders__to_lake'
        >>> job_name(FlowId("shop/eu", "orders"), "to_lake")
        'shop_eu__orders__to_lake__x3c9d3fd5b08d'
    """
    every = (flow.group, flow.name, *parts)
    plain = "__".join(every)
    if all(_SIMPLE.fullmatch(part) for part in every) and len(plain) <= _LONGEST:
        return plain
    digest = hashlib.sha256("\0".join(every).encode()).hexdigest()[:12]
    for longest in (24, (_LONGEST - len(digest) - 1) // len(every) - 3):
        words = [re.sub(r"[^A-Za-z0-9]+", "_", part).strip("_")[:longest] or "x" for part in every]
        if not words[0][0].isalpha():
            words[0] = f"f{words[0]}"
        name = "__".join([*words, f"x{digest}"])
        if len(name) <= _LONGEST:
            break
    return name


def parameter_values(config: FlowConfig) -> dict[str, str]:
    """Return the properties of a flow that are not settings of the service."""
    return {name: value for name, value in config.properties.items() if name not in _NOT_PARAMETERS}


def undeclared(declared: set[str], values: Mapping[str, str]) -> list[str]:
    """Return an error for each value that no template takes."""
    known = ", ".join(sorted(declared)) or "none"
    return [
        f"no template declares the parameter {name[:80]!r}; declared: {known}"
        for name in values
        if name not in declared and not name.startswith(KEPT)
    ]


def fill_job(
    config: FlowConfig,
    name: str,
    template: Template,
    values: Mapping[str, str],
    executor: str,
    parents: Sequence[str],
    allow: AllowLists,
    *,
    takes_keys: bool = False,
) -> tuple[DagJob | None, list[str]]:
    """Return the job that a template becomes with a flow's values, or what is wrong with it.

    Args:
        config: the flow; its settings say how often and how long the job is tried.
        name: the job's name.
        template: the template.
        values: values of the flow; those that the template does not declare are left out.
        executor: runs the job.
        parents: names of the jobs before it.
        allow: what the job may use.
        takes_keys: whether the executor takes jobs as keys of Gobblin's.
    """
    if takes_keys and not isinstance(template, GobblinFlowTemplate):
        return None, [
            f"executor {executor!r} takes Gobblin's job specs, and template {template.uri} is none of Gobblin's"
        ]
    settings = FlowSettings.stored(config.properties)
    own = {key: value for key, value in values.items() if key in template.spec.parameters}
    try:
        body = job_document(template.fill(own), name)
        carried = keys_body(template.keys(own)) if takes_keys and isinstance(template, GobblinFlowTemplate) else body
    except TemplateError as error:
        return None, [f"template {template.uri}: {error}"]
    start_within_s = int(settings.start_within.total_seconds()) if settings.start_within else None
    job = DagJob(name, executor, carried, tuple(parents), settings.max_attempts, start_within_s)
    # Faults that executors would find too, as far as they do not depend on their environment.
    faults = job_text_faults(body.encode(), check_construct, allow)
    return job, [f"template {template.uri}: {fault.path}: {fault.problem}" for fault in faults]
