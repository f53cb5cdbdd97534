"""Messages between an executor and a worker: one JSON object a line, in both directions."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from gobblin_dagster.core.utils.text import storable
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport


@dataclass(frozen=True, slots=True)
class RunOrder:
    """Run a job."""

    key: JobKey
    run_id: str
    """The engine's run; empty until a worker is found."""
    body: str
    """The job file as JSON; the worker replaces references to its environment."""


@dataclass(frozen=True, slots=True)
class StopOrder:
    """End a job: work units that run end, and what is whole is committed."""

    key: JobKey


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End all jobs as by `StopOrder`, then the worker."""


@dataclass(frozen=True, slots=True)
class JobNews:
    """What a worker says of a job."""

    key: JobKey
    status: ExecutionStatus
    message: str = ""
    processed_count: int = 0
    low_watermark: str = ""
    high_watermark: str = ""
    may_retry: bool = True

    def report(self, run_id: str = "") -> JobReport:
        """Return it as the service takes it, with the run that did the job if that is known."""
        return JobReport.of(
            self.key,
            self.status,
            self.message,
            run_id,
            self.processed_count,
            self.low_watermark,
            self.high_watermark,
            self.may_retry,
        )


Message = RunOrder | StopOrder | Shutdown | JobNews

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (RunOrder, StopOrder, Shutdown, JobNews)}


def to_line(message: Message) -> str:
    """Return a message as one line of JSON, with its line end."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}, separators=(",", ":")) + "\n"


def from_line(line: str) -> Message:
    """Read a message; raises ValueError if the line is none."""
    try:
        fields = json.loads(line)
        kind = _KINDS[fields.pop("kind")]
        if "key" in fields:
            fields["key"] = JobKey.read(fields["key"])
        texts = {name: value for name, value in fields.items() if isinstance(value, str)}
        if any(name in fields and name not in texts for name in ("run_id", "body")):
            raise ValueError("run_id and body are texts")
        if kind is JobNews:
            # A message may name a file that is not UTF-8; the rest of the news must not be lost for that.
            fields |= {name: storable(value) for name, value in texts.items()}
        elif any(storable(value) != value for value in texts.values()):
            raise ValueError("no database can hold a text")
        if "status" in fields:
            fields["status"] = ExecutionStatus(fields["status"])
        message: Message = kind(**fields)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:  # the last: too deep
        raise ValueError(f"no message of a worker: {line[:200]!r}") from error
    return message
