"""The run config `startpoint:` of Dagster: the run's datasets begin there, instead of at their watermarks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg

from gobblin_dagster.core.commit import body_digest, canonical_json
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.startpoint import DEFAULT_EXPIRY, Startpoint, parse_startpoint_position
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.run.startpoint_preview import preview_startpoints, settable, wished_startpoints
from gobblin_dagster.engine.task.runner import SessionRunner, TaskRunner
from gobblin_dagster.state.startpoints import StartpointManager

_DIGITS = 32
STARTPOINT_CONFIG = dg.Field(
    {
        "position": dg.Field(str, description="Where to begin, as `gobblin startpoint set` takes it."),
        "reason": dg.Field(str, description="Why; kept in the history."),
        "until": dg.Field(str, is_required=False, description="End of a bounded re-read, exclusive."),
        "partition": dg.Field(str, default_value="", description="Only this part of the watermark, e.g. clicks-0."),
        "on_rewind": dg.Field(
            dg.Enum("OnRewind", [dg.EnumValue(name) for name in ("refuse", "append", "replace", "upsert")]),
            default_value="refuse",
            description="What becomes of rows that are read a second time.",
        ),
        "expires_days": dg.Field(int, default_value=DEFAULT_EXPIRY.days, description="Days until it expires."),
    },
    is_required=False,
    description="A startpoint for each dataset of this run; runs that repeat this one do not set it a second time.",
)


def set_startpoints(
    opened: JobContext, urns: Collection[str] | None, config: Mapping[str, Any], runner: TaskRunner, *, run_id: str
) -> None:
    """Store a startpoint for each of the chosen datasets, or none at all. Do nothing for those that have had theirs.

    Args:
        opened: the job.
        urns: the chosen datasets.
        config: the run config.
        runner: of the run.
        run_id: id of the run; of the first one, if it repeats others.

    Raises:
        Failure: no datasets were chosen, or one of them has no such position.
        UsageError: a position cannot be read, or the source has no such dataset.
    """
    if not urns:
        raise dg.Failure("`startpoint` needs chosen partitions, or `urns`.", allow_retries=False)
    now, until = opened.store.now(), config.get("until")
    wanted = canonical_json(dict(config))
    # The history tells, because a run that failed before it came here has set nothing.
    had = {event.startpoint.id for event in opened.store.load_startpoint_events(opened.job.job, urns)}
    wishes: dict[str, Startpoint] = {}
    for urn in sorted(urns):
        asked = wished_startpoints(
            opened.project,
            opened.job,
            urn,
            parse_startpoint_position(config["position"]),
            who=f"{who()} by Dagster",
            why=config["reason"],
            now=now,
            expires_at=now + timedelta(days=config["expires_days"]),
            store=opened.store,
            partition=config["partition"],
            until=None if until is None else parse_startpoint_position(until),
            on_rewind=config["on_rewind"],
        )
        one = replace(asked[urn], id=body_digest(f"{run_id} {urn} {wanted}")[:_DIGITS])
        if one.id not in had:
            wishes[urn] = one
    spark = runner if isinstance(runner, SessionRunner) else None
    plans = preview_startpoints(opened.project, opened.job, wishes, spark, store=opened.store)
    problems = [plan.problem for plan in plans.values() if plan.problem]
    if problems:
        raise dg.Failure(" ".join(problems[:5]), allow_retries=False)
    for one in settable(wishes, {(opened.job.job, urn): plan for urn, plan in plans.items()}):
        StartpointManager(opened.store).save(one)
