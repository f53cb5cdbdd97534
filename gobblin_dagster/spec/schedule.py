"""ScheduleSpec: when Dagster starts a job by itself, and what it does about times that it missed."""

from __future__ import annotations

import re
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import field_validator

from gobblin_dagster.spec.crontab import crontab_problem
from gobblin_dagster.spec.model import SpecModel

_TIMES = r"[0-9*/,\-]+"
_DAYS = r"[0-9A-Za-z*/,\-#]+"
_CRON = re.compile(rf"@(hourly|daily|weekly|monthly)|{_TIMES} {_TIMES} {_DAYS} {_DAYS} {_DAYS}")
"""The characters of a crontab line."""


class CatchUp(StrEnum):
    """What happens to times of a schedule that passed while nobody was there to start runs."""

    ALL = "all"
    """Each of them gets a run."""
    LATEST = "latest"
    """The last of them gets a run."""
    SKIP = "skip"
    """None of them gets a run."""

    @classmethod
    def _missing_(cls, value: object) -> CatchUp | None:
        return cls.SKIP if value == "none" else None


class ScheduleSpec(SpecModel):
    """When Dagster starts the job by itself.

    Each run reads what is new since the last one, so one run makes up for all times that were missed.
    """

    cron: str
    """Minute, hour, day of month, month, day of week, as in crontab: `0 6 * * 1-5`; or `@hourly`, `@daily`."""
    time_zone: str = "UTC"
    """Name of a time zone, such as `Europe/Berlin`."""
    catch_up: CatchUp = CatchUp.LATEST
    """Times that passed while Dagster's daemon was away: `all` run, for jobs whose run reads a limited part; the
    `latest` runs; or `skip` (`none` is the same) waits for the next time."""

    @field_validator("cron")
    @classmethod
    def _five_fields(cls, cron: str) -> str:
        if not _CRON.fullmatch(cron):
            raise ValueError(
                f"expected five fields as in crontab, such as '0 6 * * 1-5', or @hourly, @daily, @weekly, @monthly; "
                f"got {cron!r}"
            )
        if not cron.startswith("@") and (problem := crontab_problem(cron)):
            raise ValueError(f"{problem}; got {cron!r}")
        return cron

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, ZoneInfoNotFoundError, OSError):
            problem = f"no time zone has the name {name!r}; expected one such as 'UTC' or 'Europe/Berlin'"
            raise ValueError(problem) from None
        return name
