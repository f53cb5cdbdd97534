"""`project.state`: watermarks of datasets, their history, and what changes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TextIO, TypeAlias

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.utils.arguments import checked_methods
from gobblin_dagster.core.utils.table import Column, Listing, mark
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.text import parse_watermark
from gobblin_dagster.engine.maintenance.state_change import (
    Change,
    apply_change,
    plan_reset,
    plan_retry,
    plan_set,
    require_free,
    require_position,
)
from gobblin_dagster.engine.maintenance.state_export import (
    ImportPlan,
    export_state,
    plan_import,
    read_export,
    run_import,
)
from gobblin_dagster.engine.maintenance.state_history import HistoryEntry, history
from gobblin_dagster.face.session import MOST, Session, limited, required, selected, several
from gobblin_dagster.state.lookup import damaged_leases, find_damage, find_state, known_jobs
from gobblin_dagster.state.store import StateStore

Key: TypeAlias = tuple[str, str]
"""Job and dataset.urn."""

_STATES: tuple[Column[DatasetState], ...] = (
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("job", "text", lambda one: one.job),
    Column("watermark", "text", lambda one: mark(one.watermark)),
    Column("rows", "number", lambda one: one.totals.rows_read),
    Column("quarantined", "number", lambda one: one.totals.rows_quarantined or None),
    Column("files", "number", lambda one: one.totals.files),
    Column("bytes", "number", lambda one: one.totals.bytes_written),
    Column("snapshot", "number", lambda one: one.snapshot),
    Column("published", "instant", lambda one: one.updated_at),
    Column("run", "text", lambda one: one.run_id, is_shown=False),
)
_HISTORY: tuple[Column[HistoryEntry], ...] = (
    Column("at", "instant", lambda one: one.at),
    Column("from", "text", lambda one: mark(one.watermark_before)),
    Column("to", "text", lambda one: mark(one.watermark_after)),
    Column("rows", "number", lambda one: one.rows),
    Column("files", "number", lambda one: one.files),
    Column("state", "text", lambda one: one.state.value),
    Column("by", "text", lambda one: f"{one.by} {one.who}"),
    Column("why", "text", lambda one: one.why or None),
)
_RUNS: tuple[Column[RunRecord], ...] = (
    Column("started", "instant", lambda one: one.started_at),
    Column("ended", "instant", lambda one: one.ended_at),
    Column("job", "text", lambda one: one.job),
    Column("status", "text", lambda one: one.status.value),
    Column("datasets", "number", lambda one: len(one.datasets)),
    Column("rows", "number", lambda one: sum(dataset.rows for dataset in one.datasets.values())),
    Column("run", "text", lambda one: one.run_id),
)


class StateListing(Listing[DatasetState]):
    """The states of datasets, and apart from them why others cannot be read."""

    __slots__ = ("damaged",)

    def __init__(self, items: Sequence[DatasetState], damaged: Mapping[Key, CorruptRecordError]) -> None:
        super().__init__(f"{count(len(items), 'dataset')} published", _STATES, items)
        self.damaged = dict(damaged)
        """Faults by job and dataset.urn; `restore` mends them."""

    def _more(self) -> list[str]:
        return [*super()._more(), *map(str, self.damaged.values())]


@checked_methods
class StateMethods:
    """Watermarks and history of datasets, as `gobblin state` shows and changes them.

    A job's name may be left out if one job alone has the dataset. Needs neither Spark nor the job files.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self,
        job: str | Sequence[str] | None = None,
        *,
        select: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
    ) -> StateListing:
        """Return the states of published datasets, by job and dataset.urn; those that are damaged are in `damaged`.

        Raises:
            UsageError: the store does not know the job.

        Example:
            >>> for state in ran.state.list(select="a*"):
            ...     print(state.dataset_urn, state.watermark, state.totals.rows_read)
            a 3 3
        """
        is_selected = selected(select, exclude).matches
        found: list[DatasetState] = []
        damaged: dict[Key, CorruptRecordError] = {}
        with self._session.use_store() as store:
            for name in known_jobs(store, several(job)):
                states, faults = store.load_readable_states(name)
                found += [state for urn, state in sorted(states.items()) if is_selected(urn)]
                faults = damaged_leases(store, name) | faults
                damaged |= {(name, urn): error for urn, error in sorted(faults.items()) if is_selected(urn)}
        return StateListing(found, damaged)

    def show(self, dataset: str, *, job: str | None = None) -> DatasetState:
        """Return the state of one dataset: its watermark, committed ranges, totals and newest snapshot.

        Raises:
            UsageError: nothing is published of it, or several jobs have it.
            CorruptRecordError: the state is damaged.

        Example:
            >>> str(ran.state.show("a").committed)
            '[0, 3)'
        """
        with self._session.use_store() as store:
            return find_state(store, dataset, job)

    def history(self, dataset: str, *, job: str | None = None) -> Listing[HistoryEntry]:
        """Return every change of a dataset's watermark, oldest first: by which run or person, from where to where.

        Example:
            >>> [(entry.by, str(entry.watermark_after)) for entry in ran.state.history("a")]
            [('run', '3')]
        """
        with self._session.use_store() as store:
            state = find_state(store, dataset, job)
            entries = history(store, state.job, dataset)
        return Listing(f"dataset {dataset}: {count(len(entries), 'change')}", _HISTORY, entries)

    def runs(self, job: str | None = None, *, dataset: str | None = None, limit: int = 20) -> Listing[RunRecord]:
        """Return the last runs, newest first; runs that had nothing to do leave no record.

        Args:
            job: the job's name; default: all jobs.
            dataset: only runs in which this dataset had work.
            limit: at most this many.
        """
        with self._session.use_store() as store:
            known_jobs(store, several(job))
            found = store.load_runs(job, limited(limit) if dataset is None else MOST)
        if dataset is not None:
            found = [run for run in found if dataset in run.datasets][: limited(limit)]
        return Listing(count(len(found), "run"), _RUNS, found)

    def set(
        self, dataset: str, watermark: Watermark | str | int, *, why: str, job: str | None = None, dry_run: bool = False
    ) -> Change:
        """Move a dataset's watermark: what lies before it counts as read, what lies after it is read (again).

        Args:
            dataset: its dataset.urn.
            watermark: the next position to read, as a value or as people write it: `2013-01-15`, `42`, an instant.
            why: kept in the dataset's history.
            job: the job's name.
            dry_run: only return what would change.

        Raises:
            UsageError: it lies before what was read, beyond the end of the source, inside of a date of files, or is of
                another type; or nothing is published of the dataset.
            DatasetBusyError, UnfinishedSequenceError: a run works on the dataset, or left it unfinished.

        Example:
            >>> change = ran.state.set("a", 2, why="row 2 was mended", dry_run=True)
            >>> str(change.before.watermark), str(change.after.watermark), change.is_backward
            ('3', '2', True)
        """

        def plan(state: DatasetState) -> Change:
            kind = state.committed.watermark_type
            moved = watermark if isinstance(watermark, Watermark) else parse_watermark(kind, str(watermark))
            require_position(self._session.project, state, moved, self._session.spark())
            return plan_set(state, moved, who=who(), why=required(why), now=self._session.now())

        with self._session.use_store() as store:
            return _changed(store, plan(find_state(store, dataset, job)), dry_run=dry_run)

    def reset(self, dataset: str, *, why: str, job: str | None = None, dry_run: bool = False) -> Change:
        """Forget what was read of a dataset: the next run reads it from the beginning. Published files stay.

        Raises as `set`.
        """
        return self._replanned(plan_reset, dataset, why, job, dry_run=dry_run)

    def retry(self, dataset: str, *, why: str, job: str | None = None, dry_run: bool = False) -> Change:
        """Read again, alone, the ranges that were given up after they failed (`execution.retry_failed`).

        Raises as `set`.
        """
        return self._replanned(plan_retry, dataset, why, job, dry_run=dry_run)

    def restore(self, dataset: str, *, job: str | None = None) -> DatasetState | None:
        """Bring a damaged state back to what the dataset's last commit made true; one that can be read stays as it is.

        A damaged lease is cleared too. None is returned if the dataset was never committed.

        Raises:
            CorruptRecordError: nothing in the store tells what was true.
        """
        with self._session.use_store() as store:
            name, _ = find_damage(store, dataset, job)
            store.restore(name, dataset)
            return store.load_dataset_states(name, [dataset]).get(dataset)

    def export(
        self,
        file: str | PathLike[str],
        job: str | Sequence[str] | None = None,
        *,
        select: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
    ) -> None:
        """Write states with their whole history as JSON lines, for `import_from` into a store of any kind.

        A file that is there is replaced when the export is complete.

        Raises:
            StorageError: the file cannot be written.
            UnfinishedSequenceError: a commit is unfinished; a copy of the store could not finish it.
        """
        is_selected = selected(select, exclude).matches
        with self._session.use_store() as store, _replacing(Path(file)) as lines:
            _write(lines.write, export_state(store, known_jobs(store, several(job)), is_selected))

    def import_from(self, file: str | PathLike[str], *, dry_run: bool = False) -> ImportPlan:
        """Bring exported states into this project's store; datasets with another history here are left alone.

        Raises:
            StorageError: the file cannot be read.
            CorruptRecordError: the file is no export, damaged, or cut.
        """
        with Path(file).open(encoding="utf-8-sig") as lines:
            exported = read_export(lines)
        with self._session.use_store() as store:
            plan = plan_import(store, exported)
            if not dry_run:
                run_import(store, plan)
        return plan

    def _replanned(
        self, plan: Callable[..., Change], dataset: str, why: str, job: str | None, *, dry_run: bool
    ) -> Change:
        reason = required(why)
        with self._session.use_store() as store:
            name, damage = find_damage(store, dataset, job)
            if damage is not None and not dry_run:
                # What was read is asked for below, so it has to be known.
                store.restore(name, dataset)
            state = find_state(store, dataset, name)
            return _changed(store, plan(state, who=who(), why=reason, now=self._session.now()), dry_run=dry_run)


def _changed(store: StateStore, change: Change, *, dry_run: bool) -> Change:
    before = change.before
    require_free(store, before.job, before.dataset_urn, store.now())
    if not dry_run:
        apply_change(store, change)
    return change


@contextmanager
def _replacing(file: Path) -> Iterator[TextIO]:
    """Open a new file that takes the place of another once it is complete; pipes and devices are written to."""
    if file.exists() and not file.is_file():
        with file.open("w", encoding="utf-8") as lines:
            yield lines
        return
    target = file.resolve()
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("w", encoding="utf-8") as lines:
            yield lines
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _write(write: Callable[[str], object], lines: Iterable[str]) -> None:
    for line in lines:
        write(line + "\n")
