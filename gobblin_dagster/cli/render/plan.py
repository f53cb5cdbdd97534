"""Print a plan for people: the new data of each dataset, and the commit steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from gobblin_dagster.cli.render.console import MAX_ROWS, bytes_of, dataset_name, print_table, rows_of
from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.constructs.source import TYPES_INFERRED
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan
from gobblin_dagster.engine.task.runner import is_in_spark

UNEVEN = 1.5
"""Weight of the heaviest pack, as a multiple of the mean, from which on a plan names the cause."""
_SCOPES = {"dataset": "for each dataset on its own", "job": "for all datasets together"}
_COLUMNS = {
    "dataset": "left",
    "low": "left",
    "expected high": "left",
    "files": "right",
    "rows": "right",
    "bytes": "right",
}


def print_plan(console: Console, plan: JobPlan) -> None:
    """Print a plan: at most `MAX_ROWS` datasets one by one, then a total."""
    active = [dataset for dataset in plan.datasets if dataset.has_work]
    idle = [dataset for dataset in plan.datasets if not dataset.has_work and not dataset.problem]
    unread = sum(dataset.low is None for dataset in idle)
    broken = sum(bool(dataset.problem) for dataset in plan.datasets)
    noted = sum(all(unit.is_noted for unit in dataset.work_units) for dataset in active)
    touched = f"{noted:,} with touched files, " if noted else ""
    console.print(
        Text(f"Plan of job {plan.job}: ", style="bold"),
        f"{count(len(active) - noted, 'dataset')} with new data, {touched}{len(idle) - unread:,} up to date",
        f", {unread:,} without anything to read yet" if unread else "",
        Text(f", {broken:,} that cannot be planned", style="red") if broken else "",
        sep="",
    )
    _print_leftovers(console, plan)
    if active:
        rows = [_row(dataset) for dataset in active[:MAX_ROWS]]
        if len(active) > MAX_ROWS:
            rows.append((f"... {len(active) - MAX_ROWS:,} more", "", "", "", "", ""))
        if len(active) > 1:
            rows.append(_total(active))
        print_table(console, _COLUMNS, rows)
        _print_packs(console, plan)
        if plan.place is not None:
            console.print(f"Work runs in {plan.place}", style="dim")
        console.print(f"Commit, {_SCOPES[plan.scope]}:", style="dim")
        for number, step in enumerate(plan.commit_steps, 1):
            console.print(f"  {number}. {step}", style="dim")
    _print_remarks(console, plan)


def _print_packs(console: Console, plan: JobPlan) -> None:
    """Print how even the packs are and, if they are uneven, why."""
    skew = plan.skew or 1.0
    if len(plan.packs) < 2:
        return
    text = f"{count(len(plan.packs), _task(plan))}, the heaviest {skew:.1f} times the mean"
    if skew >= UNEVEN:
        units = {unit.id: unit for dataset in plan.datasets for unit in dataset.work_units}
        heaviest = max((units[unit_id] for unit_id in plan.packs[0]), key=lambda unit: unit.weight)
        share = heaviest.weight / sum(plan.pack_weights)
        why = f"one work unit of {dataset_name(heaviest.dataset_urn)} is {share:.0%} of all"
        if share * len(plan.packs) <= 1:  # it would fit into an even pack
            why = f"there are only {len(units):,} work units to spread"
        text += f": {why}; smaller work units help"
    console.print(f"{text}.", style="yellow" if skew >= UNEVEN else "dim")


def _task(plan: JobPlan) -> str:
    return "Spark task" if is_in_spark(plan.place) else "task"


def _print_leftovers(console: Console, plan: JobPlan) -> None:
    for leftover in plan.leftovers[:MAX_ROWS]:
        name = dataset_name(leftover.dataset_urn)
        if leftover.state == SequenceState.QUARANTINED:
            text = f"waits for you: commit sequence {leftover.sequence_id} of {name}: {leftover.reason}"
        else:
            text = f"first: finish commit sequence {leftover.sequence_id} of {name}; its data is not read again"
        console.print(f"  {text}", style="yellow")
    if len(plan.leftovers) > MAX_ROWS:
        console.print(f"  ... {len(plan.leftovers) - MAX_ROWS:,} more; `gobblin commit list` has all", style="yellow")


def _print_remarks(console: Console, plan: JobPlan) -> None:
    told = [(names, note, "yellow") for names, note in shared_notes((d.dataset_urn, d.notes) for d in plan.datasets)]
    told += [(dataset_name(d.dataset_urn), d.problem, "red") for d in plan.datasets if d.problem]
    told += [(names, note, "dim") for names, note in _type_notes(plan)]
    for names, text, style in told[:MAX_ROWS]:
        console.print(f"  {names}: {text}", style=style)
    if len(told) > MAX_ROWS:
        console.print(f"  ... {len(told) - MAX_ROWS:,} more remarks; `gobblin plan --output json` has all")


def shared_notes(datasets: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
    """Return (datasets, note) for notes of datasets, in their order; datasets with the same note share it."""
    named: dict[str, list[str]] = {}
    for urn, notes in datasets:
        for note in dict.fromkeys(notes):
            named.setdefault(note, []).append(dataset_name(urn))
    return [(_together(names), note) for note, names in named.items()]


def _together(names: Sequence[str]) -> str:
    return f"{names[0]} and {count(len(names) - 1, 'more dataset')}" if len(names) > 1 else names[0]


def _type_notes(plan: JobPlan) -> list[tuple[str, str]]:
    """Return (dataset, note); datasets whose notes differ in the rows looked at alone share one."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for dataset in plan.datasets:
        for note in dataset.type_notes:
            types = note.partition(": ")[2] if note.startswith(TYPES_INFERRED) else note
            alike.setdefault(types, []).append((dataset_name(dataset.dataset_urn), note))
    told = []
    for types, named in alike.items():
        note = named[0][1]
        is_shared = len(named) > 1 and note.startswith(TYPES_INFERRED)
        told.append((_together([name for name, _ in named]), f"types inferred: {types}" if is_shared else note))
    return told


def _row(dataset: DatasetPlan) -> tuple[str | Text, ...]:
    return (
        dataset_name(dataset.dataset_urn),
        str(dataset.low),
        f"-> {dataset.expected_high}",
        rows_of(dataset.files),
        rows_of(dataset.rows),
        bytes_of(dataset.size_bytes),
    )


def _total(datasets: list[DatasetPlan]) -> tuple[str | Text, ...]:
    cells = (
        rows_of(_sum([dataset.files for dataset in datasets])),
        rows_of(_sum([dataset.rows for dataset in datasets])),
        bytes_of(_sum([dataset.size_bytes for dataset in datasets])),
    )
    return (Text("total", style="bold"), "", "", *cells)


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
