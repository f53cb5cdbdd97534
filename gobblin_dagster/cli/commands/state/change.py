"""`gobblin state set|reset|history|export|import|diff`: change state; each change is shown, confirmed and recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Protocol

import typer

from gobblin_dagster.cli.commands.state.lookup import DatasetArgument, JobOption
from gobblin_dagster.cli.confirm import confirm, readable
from gobblin_dagster.cli.context import (
    ExcludeOption,
    JobsArgument,
    Output,
    OutputOption,
    SelectOption,
    open_here,
    open_store_here,
)
from gobblin_dagster.cli.flow_jobs import FlowOption, job_with_flow, jobs_with_flow
from gobblin_dagster.cli.render.console import console, dataset_name, instant, print_facts, print_table
from gobblin_dagster.cli.render.documents import mark, origin_text, state_view
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.cli.spark import plan_only_spark
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import SpecError, UsageError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.core.watermark.text import parse_watermark
from gobblin_dagster.engine.maintenance import state_change, state_export, state_history
from gobblin_dagster.engine.project import Project
from gobblin_dagster.state.lookup import find_damage, find_state, require_match
from gobblin_dagster.state.store import StateStore


def _some_reason(given: str) -> str:
    if not given.strip():
        raise typer.BadParameter("a reason is what others will ask for; say one")
    return readable(given)


ReasonOption = Annotated[
    str, typer.Option("--reason", "-m", help="Why; kept in the dataset's history.", callback=_some_reason)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A file of `gobblin state export`; - is stdin.")]


def set_watermark(
    ctx: typer.Context,
    dataset: DatasetArgument,
    watermark: Annotated[
        str, typer.Argument(metavar="WATERMARK", help="Next position to read, e.g. 42, 2013-01-31 or an instant.")
    ],
    reason: ReasonOption,
    job: JobOption = None,
    flow: FlowOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Move a dataset's watermark: data before it counts as read, data after it is read (again)."""
    with closing(open_store_here(ctx)) as store:
        state = find_state(store, dataset, job_with_flow(ctx, store, flow, job, dataset))
        moved = parse_watermark(state.committed.watermark_type, watermark)
        if (project := _readable_project(ctx)) is not None:
            with plan_only_spark(project) as spark:
                state_change.require_position(project, state, moved, spark)
        change = state_change.plan_set(state, moved, who=who(), why=reason, now=SystemClock().now())
        _change(store, change, yes=yes, dry_run=dry_run, output=output)


def _readable_project(ctx: typer.Context) -> Project | None:
    """Return the project; None if its files are faulty, which keeps nobody from changing the state."""
    try:
        return open_here(ctx)
    except SpecError:
        return None


class _Plan(Protocol):
    def __call__(self, state: DatasetState, *, who: str, why: str, now: datetime) -> state_change.Change:
        """Plan a change that needs only a reason."""


def _command(plan: _Plan, doc: str) -> Callable[..., None]:
    """Return the command that plans a change, shows it, asks for confirmation, and applies it."""

    def command(
        ctx: typer.Context,
        dataset: DatasetArgument,
        reason: ReasonOption,
        job: JobOption = None,
        flow: FlowOption = None,
        yes: YesOption = False,
        dry_run: DryRunOption = False,
        output: OutputOption = Output.TEXT,
    ) -> None:
        with closing(open_store_here(ctx)) as store:
            name, damage = find_damage(store, dataset, job_with_flow(ctx, store, flow, job, dataset))
            if damage is not None and not dry_run:
                # A damaged state is restored first, because the change is planned from it. The change is confirmed
                # below.
                store.restore(name, dataset)
            change = plan(find_state(store, dataset, name), who=who(), why=reason, now=SystemClock().now())
            _change(store, change, yes=yes, dry_run=dry_run, output=output)

    command.__doc__ = doc
    return command


reset = _command(
    state_change.plan_reset,
    "Forget what was read of a dataset: the next run reads it from the beginning. Published files stay.",
)
retry = _command(
    state_change.plan_retry,
    "Read again, alone, the ranges that were given up after they failed (`execution.retry_failed`).",
)


def restore(
    ctx: typer.Context,
    dataset: DatasetArgument,
    job: JobOption = None,
    flow: FlowOption = None,
    yes: YesOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Bring a damaged state back to what the dataset's last commit made true, and clear a damaged lease.

    Nothing is read again.
    """
    with closing(open_store_here(ctx)) as store:
        name, damage = find_damage(store, dataset, job_with_flow(ctx, store, flow, job, dataset))
        if damage is not None:
            if output is Output.TEXT:
                console(sys.stdout).print(str(damage))
            confirm(f"Restore the state of {dataset_name(dataset)}?", yes)
        # A readable state may share damaged parts with its commit sequences; writing these again changes no state.
        is_restored = store.restore(name, dataset)
        if not is_restored:
            store.load_history(name, dataset)  # raises what is wrong with records of its files, which stay as they are
        # A lease may be all that the store holds of a dataset that was never committed.
        state = store.load_dataset_states(name, [dataset]).get(dataset)
    if output is Output.JSON:
        view = state_view(state) if state is not None else None
        print_json(restored=is_restored, problem=str(damage or "") or None, state=view)
    else:
        watermark = state.watermark if state is not None else None
        what = f"Restored: the watermark is {watermark or '-'}" if is_restored else "Nothing is wrong with it"
        console(sys.stdout).print(f"{what}.", style="bold")


def _change(store: StateStore, change: state_change.Change, *, yes: bool, dry_run: bool, output: Output) -> None:
    before, after = change.before, change.after
    facts = {
        "dataset": dataset_name(before.dataset_urn),
        "job": before.job,
        "from": str(before.settled) or "-",
        "to": str(after.settled) or "-",
        "consequence": change.consequence,
        "by": f"{change.who}: {change.why}",
    }
    state_change.require_free(store, before.job, before.dataset_urn, store.now())
    if output is Output.TEXT:
        print_facts(console(sys.stdout), facts)
    sequence = ""
    if not dry_run:
        confirm(f"{change.action.capitalize()} the watermark of {dataset_name(before.dataset_urn)}?", yes)
        sequence = state_change.apply_change(store, change)
    if output is Output.JSON:
        print_json(
            dry_run=dry_run,
            action=change.action,
            before=state_view(before),
            after=state_view(after),
            consequence=change.consequence,
            who=change.who,
            why=change.why,
            sequence=sequence or None,
        )
    else:
        console(sys.stdout).print("Nothing was changed." if dry_run else f"Done, as {sequence}.", style="bold")


def history(
    ctx: typer.Context,
    dataset: DatasetArgument,
    job: JobOption = None,
    flow: FlowOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Explain every change of a dataset's watermark: by which run or person, from where to where."""
    with closing(open_store_here(ctx)) as store:
        state = find_state(store, dataset, job_with_flow(ctx, store, flow, job, dataset))
        entries = state_history.history(store, state.job, dataset)
    if output is Output.JSON:
        print_json(
            job=state.job,
            dataset=dataset,
            history=[
                {
                    "sequence": entry.sequence_id,
                    "at": entry.at,
                    "state": entry.state.value,
                    "version": entry.version,
                    "from": mark(entry.watermark_before),
                    "to": mark(entry.watermark_after),
                    "committed": entry.committed_after,
                    "by": entry.by,
                    "who": entry.who,
                    "why": entry.why,
                    "rows": entry.rows,
                    "files": entry.files,
                }
                for entry in entries
            ],
        )
        return
    columns = {
        "at": "left",
        "from": "left",
        "to": "left",
        "rows": "right",
        "state": "left",
        "by": "left",
        "why": "left",
    }
    rows = (
        (
            instant(entry.at),
            mark(entry.watermark_before) or "-",
            mark(entry.watermark_after) or "-",
            f"{entry.rows:,}",
            entry.state.value,
            f"{entry.by} {entry.who}",
            entry.why,
        )
        for entry in entries
    )
    print_table(console(sys.stdout), columns, rows)


# -- between stores ----------------------------------------------------------------------------------------------------
def export_states(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    flow: FlowOption = None,
) -> None:
    """Print states with their whole history as JSON lines, for `gobblin state import` into a store of any kind."""
    selection = Selection(tuple(select or ()), tuple(exclude or ()))
    with closing(open_store_here(ctx)) as store:
        chosen = jobs_with_flow(ctx, store, flow, jobs)
        require_match(
            selection,
            (
                urn
                for job in chosen
                for named in (*store.load_readable_states(job), store.load_startpoints(job))
                for urn in named
            ),
        )
        for line in state_export.export_state(store, chosen, selection.matches):
            sys.stdout.write(line + "\n")


def import_states(
    ctx: typer.Context,
    file: FileArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Bring exported states into this project's store. Datasets that have another history here are left alone."""
    exported = _read(file)
    with closing(open_store_here(ctx)) as store:
        plan = state_export.plan_import(store, exported)
        out = console(sys.stdout)
        if output is Output.TEXT:
            parts = [count(len(plan.missing), "commit"), count(len(plan.runs), "run")]
            parts += [count(len(plan.startpoints), "startpoint")] if plan.startpoints else []
            parts += [count(len(plan.startpoint_events), "startpoint event")] if plan.startpoint_events else []
            out.print(
                f"{count(len(plan.datasets), 'dataset')} to import ({', '.join(parts)}), {len(plan.unchanged)} "
                f"unchanged, {len(plan.ahead)} further on here, {len(plan.conflicts)} with another history."
            )
            if plan.ahead:
                out.print(
                    "Further on: the file is an older export of them. To read again what came after it, use "
                    "`gobblin rollback` or `gobblin startpoint set`."
                )
            for job, urn in plan.conflicts:
                out.print(f"  left alone: {dataset_name(urn)} ({job}), which has other commits here than in the file")
            if plan.conflicts:
                out.print("Import into an empty store, or move their watermarks with `gobblin state set`.")
        if not dry_run and plan.has_changes:
            confirm(f"Import into {store.url}?", yes)
            state_export.run_import(store, plan)
    if output is Output.JSON:
        keys = {
            "imported": plan.datasets,
            "unchanged": plan.unchanged,
            "ahead": plan.ahead,
            "conflicts": plan.conflicts,
        }
        listed = {name: [{"job": job, "dataset": urn} for job, urn in found] for name, found in keys.items()}
        print_json(
            dry_run=dry_run,
            commits=len(plan.missing),
            startpoints=len(plan.startpoints),
            runs=len(plan.runs),
            **listed,
        )
    raise typer.Exit(ExitCode.FAILED if plan.conflicts else ExitCode.SUCCEEDED)


def diff(ctx: typer.Context, file: FileArgument, output: OutputOption = Output.TEXT) -> None:
    """Compare this project's store with an export: the commits of each dataset."""
    there = _read(file).standing()
    states: dict[state_export.Key, DatasetState] = {}
    startpoints: dict[state_export.Key, Startpoint] = {}
    with closing(open_store_here(ctx)) as store:
        for job in sorted({*store.list_jobs(), *(job for job, _ in (*there.states, *there.startpoints))}):
            states |= {(job, urn): state for urn, state in store.load_readable_states(job)[0].items()}
            startpoints |= {(job, urn): one for urn, one in store.load_startpoints(job).items()}
    differences = state_export.diff_states(state_export.Standing(states, startpoints), there)
    if output is Output.JSON:
        print_json(
            differences=[
                {
                    "job": one.job,
                    "dataset": one.dataset_urn,
                    "here": state_view(one.here) if one.here else None,
                    "there": state_view(one.there) if one.there else None,
                    "startpoint_here": str(one.startpoint_here) if one.startpoint_here else None,
                    "startpoint_there": str(one.startpoint_there) if one.startpoint_there else None,
                }
                for one in differences
            ]
        )
        return
    out = console(sys.stdout)
    out.print(f"{count(len(differences), 'dataset')} differ." if differences else "No difference.", style="bold")
    columns = {"dataset": "left", "job": "left", "here": "left", "in the file": "left"}
    if differences:
        rows = (
            (
                dataset_name(d.dataset_urn),
                d.job,
                _shown(d.here, d.startpoint_here, with_origin=d.is_other_origin),
                _shown(d.there, d.startpoint_there, with_origin=d.is_other_origin),
            )
            for d in differences
        )
        print_table(out, columns, rows)


def _shown(state: DatasetState | None, startpoint: Startpoint | None, *, with_origin: bool) -> str:
    shown = "-" if state is None else f"{state.settled or '-'}, snapshot {state.snapshot}"
    shown += f", read from {origin_text(state) or '-'}" if with_origin and state is not None else ""
    return f"{shown}, startpoint {startpoint}" if startpoint else shown


def _read(file: Path) -> state_export.Exported:
    if str(file) == "-":
        return state_export.read_export(sys.stdin)
    try:
        with file.open(encoding="utf-8-sig") as lines:
            return state_export.read_export(lines)
    except OSError as error:
        raise UsageError(
            problem=f"Cannot read {file}: {error.strerror}.", hint="Name a file of `gobblin state export`."
        ) from error
