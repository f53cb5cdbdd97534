"""`project.startpoint`: where the next run of a dataset begins, instead of at its watermark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gobblin_dagster.core.ids import who
from gobblin_dagster.core.startpoint import (
    ALL_JOBS,
    DEFAULT_EXPIRY,
    Oldest,
    OnRewind,
    Specific,
    Startpoint,
    StartpointPosition,
    Timestamp,
    Upcoming,
    parse_startpoint_position,
)
from gobblin_dagster.core.startpoint_types import CustomPosition
from gobblin_dagster.core.utils.arguments import checked_methods
from gobblin_dagster.core.utils.table import Column, Listing, mark
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.engine.maintenance.startpoint_history import StartpointHistoryEntry, startpoint_history
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.run.startpoint_preview import (
    job_of_dataset,
    preview_jobs,
    removable,
    settable,
    wished_startpoints,
)
from gobblin_dagster.face.session import Session, required, several
from gobblin_dagster.state.lookup import known_jobs
from gobblin_dagster.state.startpoints import StartpointManager


@dataclass(frozen=True, slots=True)
class SetStartpoint:
    """A startpoint that was asked for, and what the next run will do about it."""

    startpoint: Startpoint
    plan: DatasetPlan
    """Of the next run; `plan.problem` says why the startpoint was not stored."""
    job: str
    """The job whose next run this is; several jobs if the startpoint is for all jobs."""


_STARTPOINTS: tuple[Column[Startpoint], ...] = (
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("job", "text", lambda one: one.job),
    Column("begins at", "text", str),
    Column("fanned out for", "number", lambda one: one.generation or None),
    Column("expires", "instant", lambda one: None if one.pinned is not None or one.generation else one.expires_at),
    Column("set by", "text", lambda one: one.who),
    Column("why", "text", lambda one: one.why or None),
)
_EVENTS: tuple[Column[StartpointHistoryEntry], ...] = (
    Column("at", "instant", lambda one: one.at),
    Column("dataset", "text", lambda one: one.startpoint.dataset_urn),
    Column("job", "text", lambda one: one.startpoint.job),
    Column("startpoint", "text", lambda one: str(one.startpoint)),
    Column("change", "text", lambda one: one.change),
    Column("by", "text", lambda one: one.who),
    Column("commit", "text", lambda one: one.commit_id or None),
    Column("watermark", "text", lambda one: mark(one.watermark)),
)
_SET: tuple[Column[SetStartpoint], ...] = (
    Column("dataset", "text", lambda one: one.startpoint.dataset_urn),
    Column("job", "text", lambda one: one.job),
    Column("begins at", "text", lambda one: mark(one.plan.low)),
    Column("reads up to", "text", lambda one: mark(one.plan.expected_high)),
    Column("rows", "number", lambda one: one.plan.rows if one.plan.has_work else 0),
    Column("notes", "text", lambda one: " ".join(one.plan.notes) or None),
    Column("problem", "text", lambda one: one.plan.problem or None),
)


@checked_methods
class StartpointMethods:
    """Where the next run of a dataset begins, as `gobblin startpoint` shows and sets it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def set(
        self,
        dataset: str,
        position: StartpointPosition | Watermark | datetime | str | int,
        *,
        why: str,
        job: str | None = None,
        expires_in: timedelta = DEFAULT_EXPIRY,
        dry_run: bool = False,
        partition: str = "",
        all_jobs: bool = False,
        until: StartpointPosition | Watermark | datetime | str | int | None = None,
        on_rewind: OnRewind = "refuse",
    ) -> Listing[SetStartpoint]:
        """Let the next run of a dataset begin elsewhere: data before it counts as read, data after it is read.

        Plans first, so Spark starts for sources that plan with it.

        Args:
            dataset: its dataset.urn; `*` stands for all datasets of the job that have no startpoint.
            position: a watermark, an instant (the source finds the first position at or after it), `"oldest"`,
                `"upcoming"`, or any of these as people write it.
            why: kept with it, and in the dataset's history.
            job: the job's name; may be left out if one job has the dataset.
            expires_in: until then a run must honour it.
            dry_run: only return what the next run would do.
            partition: only this partition of the dataset, a component of its watermark such as `clicks-0`.
            all_jobs: for each job that reads the dataset from the same source; the next run of each applies it.
            until: end of a bounded re-read, exclusive, as `position`: the watermark stays where it is. Default: read on
                to the end of the data.
            on_rewind: if it goes back into published data, `"append"` publishes the rows once more, `"replace"` takes
                the files that hold them out of the snapshot, `"upsert"` needs outputs that merge rows by a key.
                `"refuse"`: a problem of the plan, if readers would see rows twice.

        Returns:
            One entry for each dataset and job; those with a problem were not stored.

        Raises:
            UsageError: the source has no such dataset, or the position cannot be read.

        Example:
            >>> (wish,) = ran.startpoint.set("a", 1, why="read again", on_rewind="append", dry_run=True)
            >>> str(wish.plan.low), wish.plan.rows
            ('1', 2)
        """
        session, reason = self._session, required(why)
        wanted = _position(position)
        with session.use_store() as store:
            now = store.now()
            spec = session.job(job) if job is not None else job_of_dataset(session.project, store, dataset)
            spark = session.spark()
            wishes = wished_startpoints(
                session.project,
                spec,
                dataset,
                wanted,
                who=who(),
                why=reason,
                now=now,
                expires_at=now + expires_in,
                spark=spark,
                store=store,
                partition=partition,
                for_all_jobs=all_jobs,
                until=None if until is None else _position(until),
                on_rewind=on_rewind,
            )
            plans = preview_jobs(session.project, spec, wishes, spark, store=store)
            found = [SetStartpoint(wishes[urn], plan, name) for (name, urn), plan in plans.items()]
            good = settable(wishes, plans)
            for startpoint in () if dry_run else good:
                StartpointManager(store).save(startpoint)
        return Listing(f"{count(len(good), 'startpoint')} {'could be set' if dry_run else 'set'}", _SET, found)

    def list(self, job: str | Sequence[str] | None = None) -> Listing[Startpoint]:
        """Return the startpoints that no run has applied yet, expired ones too."""
        with self._session.use_store() as store:
            names = known_jobs(store, several(job))
            found = [one for name in (*names, ALL_JOBS) for one in store.list_startpoints(name)]
            expired = sum(one.is_expired(store.now()) for one in found)
        title = count(len(found), "startpoint") + (f", {expired:,} expired" if expired else "")
        return Listing(title, _STARTPOINTS, found)

    def history(self, job: str | Sequence[str] | None = None) -> Listing[StartpointHistoryEntry]:
        """Return what happened to startpoints: set, replaced, fanned out, applied, removed, expired; the newest last.

        Commits that applied one are in it as long as the store holds them: `clean` deletes old ones.
        """
        with self._session.use_store() as store:
            found = startpoint_history(store, known_jobs(store, several(job)))
        return Listing(count(len(found), "event"), _EVENTS, found)

    def remove(
        self, dataset: str, *, job: str | None = None, partition: str | None = None, all_jobs: bool = False
    ) -> Listing[Startpoint]:
        """Remove the startpoints of a dataset (`*`: of all of the job) and return them.

        A running run still applies them.

        Args:
            dataset: its dataset.urn, or `*`.
            job: the job's name; may be left out if one job has them.
            partition: only the one of this partition; default: of the whole dataset and of all its partitions.
            all_jobs: those for all jobs. What was fanned out for a job already stays.

        Raises:
            UsageError: there is none, or several jobs have one.
        """
        with self._session.use_store() as store:
            names = [ALL_JOBS] if all_jobs else [job] if job is not None else store.list_jobs()
            found = removable(store, names, dataset, partition)
            for one in found:
                StartpointManager(store).remove(one)
        return Listing(f"{count(len(found), 'startpoint')} removed", _STARTPOINTS, found)


def _position(given: StartpointPosition | Watermark | datetime | str | int) -> StartpointPosition:
    if isinstance(given, datetime):
        return parse_startpoint_position(f"timestamp:{given.isoformat()}")
    if isinstance(given, Specific | Timestamp | Oldest | Upcoming | CustomPosition):
        return given
    return Specific(str(given)) if isinstance(given, Watermark) else parse_startpoint_position(str(given))
