"""Values that tests of state stores work with: states, sequences, files and leases of one job, and calls that race."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from gobblin_dagster.core.commit import CommitEffect, PublishedFile, SequenceState, StoredSequence, body_digest
from gobblin_dagster.core.dataset_state import DatasetState, Totals
from gobblin_dagster.core.errors import CommitConflictError, CorruptRecordError
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunRecord, RunStatus
from gobblin_dagster.core.startpoint import Oldest, Startpoint, StartpointPosition
from gobblin_dagster.core.watermark import CompositeWatermark, LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.state.store import StateStore

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
"""The instant at which a test begins, by the store's injected clock."""
JOB = "flights"
URN = "AA/JFK"
TTL = timedelta(minutes=5)
EXPIRED = timedelta(seconds=-1)
ME = LeaseOwner.current("run-me")
OTHER = LeaseOwner.current("run-other")

PINNED = CommittedRanges(CompositeWatermark, {"0": ((3, 5),)})
STRANGE_URNS = (
    "",
    "a:b",
    "a.b",
    "a_b",
    "a/b",
    "a%2Fb",
    "a%b",
    "a b",
    "A:B",
    ".",
    "..",
    "../../etc/passwd",
    ".hidden",
    "_hidden",
    "größe/日本語/🛫",
    "grosse",
    "'; DROP TABLE gobblin_dataset_states; --",
    "x" * 200,
)


def state(version: int, urn: str = URN, job: str = JOB) -> DatasetState:
    """A state that committed [0, 10 * version)."""
    none = CommittedRanges(LongWatermark, {})
    return DatasetState(
        job=job,
        dataset_urn=urn,
        version=version,
        committed=none.add(WatermarkInterval(LongWatermark(0), LongWatermark(10 * version))),
        snapshot=version,
        run_id="run-me",
        updated_at=START,
        totals=Totals(rows_read=10 * version, branch_rows={"all": 10 * version}),
        schemas={"all": "carrier: string"},
        failed_ranges=("[3, 4)",),
        origin={"orders": "RjdN2yOxR-mZ1BRKj8qdmg"},
        row_marks={"orders-0": RowMark(10 * version - 1, "5252d50884277769", 3)},
        holders={"all": ("files", "a Delta table"), "counted": ()},
        places={"all": ("lake/all", "lake/all"), "counted": ()},
    )


def sequence(name: str, version_read: int = 0, urn: str = URN, job: str = JOB) -> StoredSequence:
    """A sequence that is PREPARED; equal names have equal ids."""
    body = f'{{"name":"{name}","größe":"日本"}}'
    return StoredSequence(
        id=hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(),
        job=job,
        dataset_urn=urn,
        run_id="run-me",
        version_read=version_read,
        state=SequenceState.PREPARED,
        body=body,
        digest=body_digest(body),
        created_at=START + timedelta(seconds=version_read),
    )


def files_of(seq: StoredSequence, names: Sequence[str] = ("1",)) -> list[PublishedFile]:
    """Files of two branches that a sequence publishes, so many for each branch as there are names."""
    return [
        PublishedFile(
            branch=branch,
            path=f"/lake/{branch}/{seq.id}-{name}.parquet",
            size_bytes=5_000_000_000,
            sha256="ab" * 32,
            rows=7,
            snapshot=seq.version_read + 1,
        )
        for branch in ("all", "masked")
        for name in names
    ]


def in_order(files: Sequence[PublishedFile]) -> list[PublishedFile]:
    """Files as a store lists them."""
    return sorted(files, key=lambda file: (file.branch, file.path))


def take(store: StateStore, owner: LeaseOwner = ME, urn: str = URN, job: str = JOB, ttl: timedelta = TTL) -> Lease:
    """Take a lease that must be free."""
    return store.acquire_leases(job, [urn], owner, ttl).granted[urn]


def publish(store: StateStore, name: str, version_read: int = 0, urn: str = URN, job: str = JOB) -> StoredSequence:
    """Bring one sequence from nothing to COMMITTED."""
    seq = sequence(name, version_read, urn, job)
    epoch = take(store, urn=urn, job=job).epoch
    store.prepare(seq, epoch)
    store.commit(seq.id, epoch, CommitEffect(state(version_read + 1, urn, job), files_of(seq)))
    return seq


def ending_of(store: StateStore, seq: StoredSequence) -> SequenceState | None:
    """The stored state of a sequence; None if it is not stored."""
    stored = store.load_sequence(seq.id)
    return None if stored is None else stored.state


def contents(store: StateStore) -> object:
    """Everything but leases, to tell that nothing changed."""
    return (
        store.load_dataset_states(JOB),
        store.load_sequences(states=list(SequenceState)),
        store.load_snapshot(JOB, URN),
        store.load_unreported(JOB),
        store.list_jobs(),
    )


def race(*calls: Callable[[], object]) -> list[object]:
    """Run calls at the same moment and return what each returned or raised."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        gate.wait()
        try:
            return call()
        except (CommitConflictError, CorruptRecordError) as refusal:
            return refusal

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def run_record(name: str, started_at: datetime, job: str = JOB) -> RunRecord:
    """A run that has records of datasets with strange names."""
    datasets = {urn: DatasetRunRecord(DatasetOutcome.FAILED, error="größe") for urn in STRANGE_URNS}
    return RunRecord(name, job, started_at, RunStatus.SUCCEEDED, datasets=datasets)


def wish(position: StartpointPosition | None = None, urn: str = URN, job: str = JOB) -> Startpoint:
    """A startpoint of one day."""
    return Startpoint(job, urn, position or Oldest(), START, START + timedelta(days=1), "anna@host", "snow fell")
