"""`project.startpoint`: where the next run of a dataset begins, instead of at its watermark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.startpoint import (
    DEFAULT_EXPIRY,
    Oldest,
    Specific,
    Startpoint,
    StartpointPosition,
    Timestamp,
    Upcoming,
    parse_startpoint_position,
)
from gobblin_dagster.core.utils.arguments import checked_methods
from gobblin_dagster.core.utils.table import Column, Listing, mark
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.run.startpoint_preview import ALL, job_of_dataset, preview_startpoints, wished_startpoints
from gobblin_dagster.face.session import Session, required, several
from gobblin_dagster.state.lookup import known_jobs


@dataclass(frozen=True, slots=True)
class SetStartpoint:
    """A startpoint that was asked for, and what the next run will do about it."""

    startpoint: Startpoint
    plan: DatasetPlan
    """Of the next run; `plan.problem` says why the startpoint was not stored."""


_STARTPOINTS: tuple[Column[Startpoint], ...] = (
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("job", "text", lambda one: one.job),
    Column("begins at", "text", str),
    Column("expires", "instant", lambda one: None if one.pinned is not None else one.expires_at),
    Column("set by", "text", lambda one: one.who),
    Column("why", "text", lambda one: one.why or None),
)
_SET: tuple[Column[SetStartpoint], ...] = (
    Column("dataset", "text", lambda one: one.startpoint.dataset_urn),
    Column("begins at", "text", lambda one: mark(one.plan.low)),
    Column("reads up to", "text", lambda one: mark(one.plan.expected_high)),
    Column("rows", "number", lambda one: one.plan.rows if one.plan.has_work else 0),
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

        Returns:
            One entry for each dataset; those with a problem were not stored.

        Raises:
            UsageError: the source has no such dataset, or the position cannot be read.

        Example:
            >>> (wish,) = ran.startpoint.set("a", 1, why="read again", dry_run=True)
            >>> str(wish.plan.low), wish.plan.rows
            ('1', 2)
        """
        session, reason, now = self._session, required(why), self._session.now()
        wanted = _position(position)
        with session.use_store() as store:
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
            )
            plans = preview_startpoints(session.project, spec, wishes, spark, store=store)
            found = [SetStartpoint(wishes[urn], plan) for urn, plan in plans.items()]
            good = [one.startpoint for one in found if not one.plan.problem]
            for startpoint in () if dry_run else good:
                store.save_startpoint(startpoint)
        return Listing(f"{count(len(good), 'startpoint')} {'could be set' if dry_run else 'set'}", _SET, found)

    def list(self, job: str | Sequence[str] | None = None) -> Listing[Startpoint]:
        """Return the startpoints that no run has applied yet, expired ones too."""
        with self._session.use_store() as store:
            names = known_jobs(store, several(job))
            found = [one for name in names for _, one in sorted(store.load_startpoints(name).items())]
        return Listing(count(len(found), "startpoint"), _STARTPOINTS, found)

    def remove(self, dataset: str, *, job: str | None = None) -> Listing[Startpoint]:
        """Remove the startpoint of a dataset (`*`: of all of the job) and return it. A running run still applies it.

        Raises:
            UsageError: there is none, or several jobs have one.
        """
        with self._session.use_store() as store:
            names = [job] if job is not None else store.list_jobs()
            found = [s for n in names for urn, s in sorted(store.load_startpoints(n).items()) if dataset in (urn, ALL)]
            jobs = sorted({one.job for one in found})
            if len(jobs) != 1:
                where = f"has startpoints in several jobs: {', '.join(jobs)}" if jobs else "has no startpoint"
                hint = "Name one: job=..." if jobs else "`startpoint.list()` returns those there are."
                raise UsageError(problem=f"Dataset {dataset!r} {where}.", hint=hint)
            for one in found:
                store.delete_startpoint(one)
        return Listing(f"{count(len(found), 'startpoint')} removed", _STARTPOINTS, found)


def _position(given: StartpointPosition | Watermark | datetime | str | int) -> StartpointPosition:
    if isinstance(given, datetime):
        return parse_startpoint_position(f"timestamp:{given.isoformat()}")
    if isinstance(given, Specific | Timestamp | Oldest | Upcoming):
        return given
    return Specific(str(given)) if isinstance(given, Watermark) else parse_startpoint_position(str(given))
