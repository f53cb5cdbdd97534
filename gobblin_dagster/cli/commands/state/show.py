"""`gobblin state show`: show everything about one dataset."""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from typing import Any

import typer

from gobblin_dagster.cli.commands.state.lookup import JobOption, NamedArgument
from gobblin_dagster.cli.context import Output, OutputOption, open_store_here
from gobblin_dagster.cli.flow_jobs import FlowOption, job_with_flow
from gobblin_dagster.cli.render.console import bytes_of, console, dataset_name, instant, print_facts
from gobblin_dagster.cli.render.documents import origin_text, startpoint_view, state_view
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.commit import NO_REPORT, CommitReport, SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.ids import is_of_person
from gobblin_dagster.core.startpoint import ALL_JOBS, Startpoint
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.core.watermark.file_set import LINE, FileSetWatermark, time_of_change
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.state.lookup import find_named
from gobblin_dagster.state.store import StateStore


def show(
    ctx: typer.Context,
    dataset: NamedArgument,
    job: JobOption = None,
    flow: FlowOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show all that is known of one dataset: ranges, gaps, startpoints, totals and files of its newest snapshot."""
    with closing(open_store_here(ctx)) as store:
        state = find_named(store, dataset, job_with_flow(ctx, store, flow, job, dataset))
        files = store.load_snapshot(state.job, state.dataset_urn)
        waiting, report = _waiting(store, state), _newest_report(store, state)
    applied = report.startpoint
    if output is Output.JSON:
        listed = [{"branch": f.branch, "path": f.path, "rows": f.rows, "bytes": f.size_bytes} for f in files]
        print_json(
            **state_view(state),
            startpoint_applied=startpoint_view(applied) | {"note": report.notes[0]} if applied else None,
            startpoints_waiting=[startpoint_view(one) | {"job": one.job} for one in waiting],
            snapshot_files=listed,
            input_files=_input_files(state),
        )
        return
    branches = ", ".join(f"{name} {rows:,}" for name, rows in sorted(state.totals.branch_rows.items()))
    facts = {
        "dataset": dataset_name(state.dataset_urn),
        "job": state.job,
        "watermark": str(state.watermark or "-"),
        "committed": str(state.committed) or "-",
        **_remembered(state),
        "given up": str(state.given_up or "") or "nothing",
        "failed ranges": ", ".join(state.failed_ranges) or "none",
        **({"read from": origin_text(state)} if state.origin else {}),
        **({"startpoint applied": f"by version {state.version}: {report.notes[0]}"} if applied else {}),
        **({"startpoints waiting": "; ".join(_told(one) for one in waiting)} if waiting else {}),
        "version": f"{state.version}, {instant(state.updated_at)}, by {_by(state.run_id)}",
        "rows read": f"{state.totals.rows_read:,}",
        "rows written": branches or "none",
        "quarantined": f"{state.totals.rows_quarantined:,}",
        "snapshot": f"{state.snapshot}: {count(len(files), 'file')}, {bytes_of(sum(f.size_bytes for f in files))}",
    }
    print_facts(console(sys.stdout), facts)


def _waiting(store: StateStore, state: DatasetState) -> list[Startpoint]:
    """Return the startpoints that the dataset's next run may apply: of its job, and of all jobs."""
    own, wide = (store.list_startpoints(name, [state.dataset_urn]) for name in (state.job, ALL_JOBS))
    known = {*state.applied_startpoints, *(one.id for one in own)}
    return [*own, *(one for one in wide if one.id not in known)]


def _newest_report(store: StateStore, state: DatasetState) -> CommitReport:
    """Return the report of the commit that made the state; an empty one if it cannot be read."""
    for stored in store.load_sequences(state.job, {SequenceState.COMMITTED}, [state.dataset_urn], limit=1):
        if stored.version_read + 1 == state.version:
            with suppress(CorruptRecordError):  # `gobblin state history` tells
                return decode_sequence(stored, store.places, skip_unknown_steps=True).report
    return NO_REPORT


def _told(one: Startpoint) -> str:
    whose = f"{one} of {one.who}" + (" for all jobs" if one.job == ALL_JOBS else "")
    return f"{whose}: {one.why}" if one.why else whose


def _by(run_id: str) -> str:
    return "a person; see `gobblin state history`" if is_of_person(run_id) else f"run {run_id}"


def _remembered(state: DatasetState) -> dict[str, str]:
    """Return the number of files in a file-set watermark, for people; empty for other watermarks."""
    known = _input_files(state)
    return {} if known is None else {"input files": f"{len(known):,}; `--output json` lists them"}


def _input_files(state: DatasetState) -> list[dict[str, Any]] | None:
    """Return the source files in a file-set watermark, as they were read; None for other watermarks."""
    if state.committed.watermark_type is not FileSetWatermark:
        return None
    versions: dict[str, Any] = {name: parts[-1][1] for name, parts in state.committed.ranges.items() if name != LINE}
    return [
        {
            "file": name,
            "bytes": version.size_bytes,
            "modified_at": time_of_change(version.modified_us),
            "checksum": version.checksum or None,
            "times_read": version.contents,
        }
        for name, version in sorted(versions.items())
    ]
