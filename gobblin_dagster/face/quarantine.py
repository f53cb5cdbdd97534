"""`project.quarantine`: rows that policies and converters rejected."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gobblin_dagster.core.ids import who
from gobblin_dagster.core.utils.arguments import checked_methods
from gobblin_dagster.core.utils.table import Column, Listing
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.maintenance.replay import Replay, replay_quarantine
from gobblin_dagster.engine.snapshots.rejected_rows import (
    QuarantineCount,
    QuarantinedRow,
    count_readable,
    read_quarantined,
)
from gobblin_dagster.face.session import Session, limited, several
from gobblin_dagster.state.lookup import find_state, known_jobs

log = logging.getLogger(__name__)
_COUNTS: tuple[Column[QuarantineCount], ...] = (
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("job", "text", lambda one: one.job),
    Column("policy", "text", lambda one: one.policy),
    Column("rows", "number", lambda one: one.rows),
)
_ROWS: tuple[Column[QuarantinedRow], ...] = (
    Column("policy", "text", lambda one: one.policy),
    Column("reason", "text", lambda one: one.reason),
    Column("file", "text", lambda one: one.source_file),
    Column("row", "number", lambda one: one.source_row),
    Column("stage", "text", lambda one: one.stage),
    Column("record", "text", lambda one: one.record),
)


@checked_methods
class QuarantineMethods:
    """Rejected rows in the newest snapshots, as `gobblin quarantine` counts, shows and replays them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, job: str | Sequence[str] | None = None) -> Listing[QuarantineCount]:
        """Count rejected rows by job, dataset and policy.

        A dataset with damaged records or files hides no other: the title and a warning name it.
        """
        found: list[QuarantineCount] = []
        damaged: list[str] = []
        with self._session.use_store() as store:
            for name in known_jobs(store, several(job)):
                counts, faults = count_readable(store, name)
                found += counts
                damaged += sorted(faults)
                for urn in sorted(faults):
                    log.warning("Dataset %r of job %r is not counted: %s", urn, name, faults[urn])
        title = f"{count(sum(one.rows for one in found), 'row')} in quarantine"
        if damaged:
            title += f"; damaged, and not counted: {', '.join(damaged)}"
        return Listing(title, _COUNTS, found)

    def show(
        self, dataset: str, *, job: str | None = None, policy: str | None = None, limit: int = 20
    ) -> Listing[QuarantinedRow]:
        """Return rejected rows of a dataset: policy, reason, file and row of origin, and the row as JSON.

        Args:
            dataset: its dataset.urn.
            job: the job's name; may be left out if one job has the dataset.
            policy: only rows that broke this policy.
            limit: at most this many; no more is read than is needed.
        """
        with self._session.use_store() as store:
            state = find_state(store, dataset, job)
            rows = read_quarantined(store, state.job, dataset, policy, limited(limit))
        return Listing(f"dataset {dataset}: {count(len(rows), 'row')} in quarantine", _ROWS, rows)

    def replay(self, dataset: str, *, job: str | None = None, rule: str | None = None, dry_run: bool = False) -> Replay:
        """Send rejected rows of a dataset through the pipeline again, by the job as it is now, exactly once.

        Args:
            dataset: its dataset.urn.
            job: the job's name; may be left out if one job has the dataset.
            rule: only rows that this policy or converter rejected.
            dry_run: only count the rows.

        Raises:
            DatasetBusyError, UnfinishedSequenceError: a run works on the dataset, or left it unfinished.
        """
        spec = self._session.job_of(dataset, job)
        with self._session.use_store() as store:
            return replay_quarantine(
                self._session.project, spec, dataset, rule=rule, dry_run=dry_run, who=who(), store=store
            )
