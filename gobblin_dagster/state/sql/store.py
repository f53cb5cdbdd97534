"""SqlStateStore: the state store in SQLite (the embedded default) or PostgreSQL.

Each method is one transaction, durable on return; the statements are in `leases`, `sequences`, `snapshots`,
`startpoints`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import URL, Connection, Integer, RootTransaction, Row, bindparam, delete, insert, select, union, update
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.core import serialization
from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.commit import (
    UNFINISHED,
    WAITING,
    CommitEffect,
    FileHistory,
    PublishedFile,
    SequenceState,
    StoredSequence,
    body_digest,
    require_state,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CommitStateUnknownError, CorruptRecordError
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.core.places import Places
from gobblin_dagster.core.run_record import RunRecord, is_run
from gobblin_dagster.core.startpoint import ALL_JOBS, Startpoint, StartpointChange, StartpointEvent
from gobblin_dagster.database.database import Database
from gobblin_dagster.database.dialect import as_list, is_among, texts
from gobblin_dagster.state.parts import put_together
from gobblin_dagster.state.sql import leases as sql_leases
from gobblin_dagster.state.sql import parts as sql_parts
from gobblin_dagster.state.sql import pruning as sql_pruning
from gobblin_dagster.state.sql import sequences as sql_sequences
from gobblin_dagster.state.sql import snapshots as sql_snapshots
from gobblin_dagster.state.sql import startpoints as sql_startpoints
from gobblin_dagster.state.sql.schema import CHAIN
from gobblin_dagster.state.sql.tables import (
    dataset_states,
    former_bases,
    runs,
    sequences,
    startpoint_events,
    startpoints,
)
from gobblin_dagster.state.store import LeaseGrant

log = logging.getLogger(__name__)
ANSWER_WITHIN_S = 300.0
"""Seconds after which a database that does not answer counts as away; far more than the longest statement takes."""


class SqlStateStore:
    """Implements `StateStore` with SQLAlchemy; opening creates or migrates the tables.

    Args:
        engine_url: `sqlite:///<file>` or `postgresql://user:password@host:port/database`.
        clock: gives the time for SQLite; PostgreSQL uses its own clock.
        base: the project's folder, absolute. Paths inside it are stored relative to it; empty stores all paths as they
            are.

    Raises:
        StoreVersionError: the store has a revision that this program does not know; nothing was changed.
        TransientError: the database cannot be reached.
        EnvironmentFaultError: the database's driver is not installed.
        StorageError: the file or its folder cannot be used.
        UsageError: the URL cannot be read.

    Source: gobblin-metastore `MysqlStateStore`. Differs: versions and epochs are checked in every transaction.
    """

    def __init__(self, engine_url: str | URL, clock: Clock, base: str = "") -> None:
        def note_base(connection: Connection) -> None:
            connection.execute(update(former_bases).where(former_bases.c.base == "").values(base=base))

        self._database = Database(engine_url, clock, CHAIN, note_base, answer_within_s=ANSWER_WITHIN_S)
        self._read, self._write, self._now = self._database.read, self._database.write, self._database.now
        try:
            with self._read() as connection:
                self._places = Places(base, connection.scalar(select(former_bases.c.base)) or "")
        except BaseException:
            self.close()
            raise

    @property
    def places(self) -> Places:
        return self._places

    @property
    def url(self) -> str:
        return self._database.url

    def __repr__(self) -> str:
        return f"SqlStateStore({self.url!r})"

    def close(self) -> None:
        self._database.close()

    # -- dataset states ------------------------------------------------------------------------------------------------
    def load_dataset_states(self, job: str, urns: Collection[str] | None = None) -> dict[str, DatasetState]:
        states, damaged = self.load_readable_states(job, urns)
        for error in damaged.values():
            raise error
        return states

    def load_readable_states(
        self, job: str, urns: Collection[str] | None = None
    ) -> tuple[dict[str, DatasetState], dict[str, CorruptRecordError]]:
        query, asked = (_OF_JOB, {}) if urns is None else (_AMONG, {"urns": as_list(urns)})
        with self._read() as connection:
            rows = connection.execute(query, {"of_job": job, **asked}).all()
            known = sql_parts.load(connection, [row.body for row in rows])
        states: dict[str, DatasetState] = {}
        damaged: dict[str, CorruptRecordError] = {}
        for row in rows:
            try:
                states[row.dataset_urn] = _load_state(known, job, *row)
            except CorruptRecordError as error:
                damaged[row.dataset_urn] = error
        return states, damaged

    def restore(self, job: str, dataset_urn: str) -> bool:
        with self._write() as connection:
            sql_leases.lock_row(connection, job, dataset_urn)
            is_mended = sql_parts.mend_all(connection, job, dataset_urn)
            is_mended |= sql_leases.mend(connection, job, dataset_urn, self._now(connection))
            try:
                _state_of(connection, job, dataset_urn)
            except CorruptRecordError as error:
                sql_sequences.restore_state(connection, job, dataset_urn, error)
                return True
            return is_mended

    def list_jobs(self, urns: Collection[str] | None = None, besides: Collection[str] = ()) -> list[str]:
        with self._read() as connection:
            if urns is not None:
                found = is_among(dataset_states.c.dataset_urn, urns)
                jobs = connection.scalars(select(dataset_states.c.job).where(found).distinct())
                return sorted(set(jobs) - {*besides})
            query = union(
                *(select(table.c.job) for table in (dataset_states, sequences, startpoints, startpoint_events, runs))
            )
            return sorted(set(connection.scalars(query)) - {ALL_JOBS, *besides})

    def now(self) -> datetime:
        with self._read() as connection:
            return self._now(connection)

    # -- leases --------------------------------------------------------------------------------------------------------
    def acquire_leases(self, job: str, urns: Collection[str], owner: LeaseOwner, ttl: timedelta) -> LeaseGrant:
        with self._write() as connection:
            return sql_leases.acquire(connection, job, urns, owner, now=self._now(connection), ttl=ttl)

    def renew_leases(self, job: str, leases: Collection[Lease], ttl: timedelta) -> dict[str, Lease]:
        with self._write() as connection:
            return sql_leases.renew(connection, job, leases, self._now(connection), ttl)

    def release_leases(self, job: str, leases: Collection[Lease]) -> None:
        with self._write() as connection:
            sql_leases.release(connection, job, leases)

    def leave_leases(self, job: str, epochs: Mapping[str, int]) -> None:
        with self._write() as connection:
            sql_leases.leave(connection, job, epochs)

    def load_leases(self, job: str) -> dict[str, Lease]:
        with self._read() as connection:
            return sql_leases.load(connection, job)

    # -- commit protocol -----------------------------------------------------------------------------------------------
    def prepare(self, sequence: StoredSequence, epoch: int) -> None:
        self.prepare_all([(sequence, epoch)])

    def prepare_all(self, items: Sequence[tuple[StoredSequence, int]]) -> None:
        with self._write() as connection:
            sql_sequences.prepare(connection, items)

    def commit(self, sequence_id: str, epoch: int, effect: CommitEffect) -> None:
        self.commit_all([(sequence_id, epoch, effect)])

    def commit_all(self, items: Sequence[tuple[str, int, CommitEffect]]) -> None:
        with self._database.written() as transaction:
            connection = transaction.connection
            locked = sql_sequences.lock_all(connection, [sequence_id for sequence_id, _, _ in items])
            left = [
                (locked[sequence_id], epoch, effect)
                for sequence_id, epoch, effect in items
                if locked[sequence_id].state is not SequenceState.COMMITTED
            ]
            if not left:
                return
            for sequence, _, _ in left:
                require_state(sequence, {SequenceState.PREPARED})
            sql_sequences.commit(connection, left, self._places)
            _commit(transaction, left[0][0])

    def record(self, sequence: StoredSequence, epoch: int, effect: CommitEffect) -> None:
        with self._database.written() as transaction:
            sql_sequences.prepare(transaction.connection, [(sequence, epoch)])
            sql_sequences.commit(transaction.connection, [(sequence, epoch, effect)], self._places)
            _commit(transaction, sequence)

    def adopt(self, sequence: StoredSequence, epoch: int, after: DatasetState, history: Sequence[FileHistory]) -> None:
        effect = CommitEffect(after, [one.file for one in history])
        with self._database.written() as transaction:
            sql_sequences.adopt(transaction.connection, sequence, epoch, effect, self._places)
            sql_snapshots.add_removals(transaction.connection, after, history, self._places)
            _commit(transaction, sequence)

    def prune_sequences(self, job: str, dataset_urn: str, below: int) -> int:
        with self._write() as connection:
            return sql_pruning.prune(connection, job, dataset_urn, below)

    def start_abort(self, sequence_id: str, epoch: int, reason: str) -> None:
        self._flip(sequence_id, SequenceState.PREPARED, SequenceState.ABORTING, epoch, reason)

    def finish_abort(self, sequence_id: str, epoch: int) -> None:
        self._flip(sequence_id, SequenceState.ABORTING, SequenceState.ABORTED, epoch, None)

    def _flip(
        self, sequence_id: str, before: SequenceState, after: SequenceState, epoch: int, reason: str | None
    ) -> None:
        """Set the state of a sequence; do nothing if it has the state already, so that the call can be repeated."""
        with self._write() as connection:
            sequence = sql_sequences.lock(connection, sequence_id)
            sql_leases.require_epoch(connection, sequence.job, sequence.dataset_urn, epoch)
            require_state(sequence, {before, after})
            if sequence.state is before:
                sql_sequences.set_state(connection, sequence_id, after, reason)

    def quarantine(self, sequence_id: str, reason: str) -> None:
        with self._write() as connection:
            sequence = sql_sequences.lock(connection, sequence_id)
            require_state(sequence, WAITING)
            sql_sequences.set_state(connection, sequence_id, SequenceState.QUARANTINED, reason)

    def abandon(self, sequence_id: str, epoch: int, reason: str) -> None:
        self._flip(sequence_id, SequenceState.QUARANTINED, SequenceState.ABORTED, epoch, reason)

    def retry(self, sequence_id: str, epoch: int) -> None:
        with self._write() as connection:
            sequence = sql_sequences.lock(connection, sequence_id)
            sql_leases.require_epoch(connection, sequence.job, sequence.dataset_urn, epoch)
            require_state(sequence, {SequenceState.QUARANTINED, SequenceState.PREPARED})
            if sequence.state is SequenceState.QUARANTINED:
                sql_sequences.forget_redo_failures(connection, sequence_id)
                sql_sequences.set_state(connection, sequence_id, SequenceState.PREPARED)

    def record_redo_failure(self, sequence_id: str, reason: str) -> int:
        with self._write() as connection:
            return sql_sequences.count_redo_failure(connection, sequence_id, reason)

    def load_sequence(self, sequence_id: str) -> StoredSequence | None:
        with self._read() as connection:
            return sql_sequences.load_one(connection, sequence_id)

    def load_sequences(
        self,
        job: str | None = None,
        states: Collection[SequenceState] = UNFINISHED,
        urns: Collection[str] | None = None,
        limit: int | None = None,
        below: int | None = None,
    ) -> list[StoredSequence]:
        with self._read() as connection:
            return sql_sequences.load(connection, job, states, urns, limit, below)

    def misplaced(self, job: str, versions: Mapping[str, int]) -> dict[str, CorruptRecordError]:
        with self._read() as connection:
            return dict(sql_sequences.misplaced(connection, job, versions))

    # -- snapshots -----------------------------------------------------------------------------------------------------
    def load_snapshot(self, job: str, dataset_urn: str, snapshot: int | None = None) -> list[PublishedFile]:
        with self._read() as connection:
            state = _state_of(connection, job, dataset_urn)
            if state is None:
                return []
            return sql_snapshots.load(connection, state, snapshot, self._places)

    def load_history(self, job: str, dataset_urn: str) -> list[FileHistory]:
        with self._read() as connection:
            return sql_snapshots.load_history(connection, job, dataset_urn, self._places)

    # -- startpoints ---------------------------------------------------------------------------------------------------
    def save_startpoint(self, startpoint: Startpoint) -> None:
        with self._write() as connection:
            sql_startpoints.save(connection, startpoint, self._now(connection))

    def pin_startpoint(self, startpoint: Startpoint, run_id: str) -> bool:
        with self._write() as connection:
            return sql_startpoints.pin(connection, startpoint, self._now(connection), run_id)

    def fan_out_startpoint(self, copy: Startpoint, run_id: str) -> bool:
        with self._write() as connection:
            return sql_startpoints.fan_out(connection, copy, self._now(connection), run_id)

    def load_startpoints(self, job: str, urns: Collection[str] | None = None) -> dict[str, Startpoint]:
        return {one.dataset_urn: one for one in self.list_startpoints(job, urns) if not one.partition}

    def list_startpoints(self, job: str, urns: Collection[str] | None = None) -> list[Startpoint]:
        with self._read() as connection:
            return sql_startpoints.load(connection, job, urns)

    def delete_startpoint(self, startpoint: Startpoint, who: str, change: StartpointChange = "removed") -> bool:
        with self._write() as connection:
            event = StartpointEvent(startpoint, change, self._now(connection), who)
            return sql_startpoints.remove(connection, event)

    def load_startpoint_events(self, job: str, urns: Collection[str] | None = None) -> list[StartpointEvent]:
        with self._read() as connection:
            return sql_startpoints.load_events(connection, job, urns)

    def import_startpoints(
        self, job: str, dataset_urn: str, startpoints: Sequence[Startpoint], events: Sequence[StartpointEvent]
    ) -> None:
        with self._write() as connection:
            sql_startpoints.bring(connection, startpoints, events)

    # -- reporting to Dagster ------------------------------------------------------------------------------------------
    def load_unreported(self, job: str, limit: int | None = None) -> list[StoredSequence]:
        with self._read() as connection:
            return sql_sequences.load_unreported(connection, job, limit)

    def mark_reported(self, sequence_ids: Collection[str]) -> None:
        with self._write() as connection:
            sql_sequences.mark_reported(connection, sequence_ids)

    # -- run history ---------------------------------------------------------------------------------------------------
    def save_run(self, record: RunRecord) -> None:
        values = {"run_id": record.run_id, "job": record.job, "started_at": record.started_at}
        values["body"] = serialization.to_json(record)
        with self._write() as connection:
            connection.execute(_RUN_AGAIN, {"id": record.run_id, "of_job": record.job})
            connection.execute(_RUN, values)

    def prune_runs(self, job: str, keep: int) -> None:
        with self._write() as connection:
            connection.execute(_OLD_RUNS, {"of_job": job, "keep": keep})

    def load_runs(self, job: str | None = None, limit: int = 20) -> list[RunRecord]:
        query = _RUNS.order_by(runs.c.started_at.desc(), runs.c.run_id.desc()).limit(limit)
        if job is not None:
            query = query.where(runs.c.job == job)
        with self._read() as connection:
            return list(_readable_runs(connection.execute(query)))

    def find_runs(self, job: str, run_ids: Collection[str]) -> list[RunRecord]:
        newest_first = (runs.c.started_at.desc(), runs.c.run_id.desc())
        names = select(runs.c.run_id).where(runs.c.job == job).order_by(*newest_first)
        with self._read() as connection:
            known = connection.scalars(names) if run_ids else ()
            # A damaged id names no run.
            wanted = [one for one in known if isinstance(one, str) and is_run(one, run_ids)]
            found: list[RunRecord] = []
            for at in range(0, len(wanted), _RUNS_AT_ONCE):
                query = _RUNS.where(runs.c.job == job, runs.c.run_id.in_(wanted[at : at + _RUNS_AT_ONCE]))
                found += _readable_runs(connection.execute(query.order_by(*newest_first)))
            return found


def _readable_runs(rows: Iterable[Row[str, str]]) -> Iterator[RunRecord]:
    """Read records of runs; a damaged one hides no other."""
    for run_id, body in rows:
        try:
            yield serialization.from_json(RunRecord, body)
        except CorruptRecordError as error:
            log.warning("The record of run %s is damaged, and left out: %s", run_id, error.problem)


def _commit(transaction: RootTransaction, sequence: StoredSequence) -> None:
    try:
        transaction.commit()
    except DBAPIError as error:
        # COMMIT was sent, but its answer was lost: the database may have committed or not.
        raise CommitStateUnknownError(
            dataset_urn=sequence.dataset_urn, sequence_id=sequence.id, problem=" ".join(str(error.orig).split())
        ) from error


def _state_of(connection: Connection, job: str, urn: str) -> DatasetState | None:
    columns = dataset_states.c
    row = connection.execute(_STATES.where(columns.job == job, columns.dataset_urn == urn)).one_or_none()
    return None if row is None else _load_state(sql_parts.load(connection, [row.body]), job, *row)


_RUNS = select(runs.c.run_id, runs.c.body)
_RUNS_AT_ONCE = 500
"""Ids in one query: databases take a limited number of parameters."""
_STATES = select(*(dataset_states.c[name] for name in ("dataset_urn", "version", "body", "digest")))
# Statements are made once: making one takes longer than it runs.
_OF_JOB = _STATES.where(dataset_states.c.job == bindparam("of_job"))
_AMONG = _OF_JOB.where(is_among(dataset_states.c.dataset_urn, texts("urns")))
_RUN_AGAIN = delete(runs).where(runs.c.run_id == bindparam("id"), runs.c.job == bindparam("of_job"))
_RUN = insert(runs)
_KEPT_RUNS = (
    select(runs.c.run_id)
    .where(runs.c.job == bindparam("of_job"))
    .order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
    .limit(bindparam("keep", type_=Integer()))
)
_OLD_RUNS = delete(runs).where(runs.c.job == bindparam("of_job"), runs.c.run_id.not_in(_KEPT_RUNS))


def _load_state(
    known: Mapping[str, str], job: str, urn: str, version: int, stored: str, digest: str | None
) -> DatasetState:
    what = f"The state of dataset {urn!r} of job {job!r}"
    body = put_together(stored, known, what)
    if digest is not None and digest != body_digest(body):
        raise CorruptRecordError(what=what, problem="it does not match its digest: another program changed it")
    try:
        state = serialization.from_json(DatasetState, body)
    except CorruptRecordError as error:
        raise CorruptRecordError(what=what, problem=error.problem) from error
    if (state.job, state.dataset_urn) != (job, urn):
        raise CorruptRecordError(what=what, problem=f"it is that of {state.dataset_urn!r} of job {state.job!r}")
    if state.version != version:
        raise CorruptRecordError(what=what, problem=f"its row says version {version}, its body {state.version}")
    return state
