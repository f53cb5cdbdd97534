"""Log lines of the service, as text or as JSON, each with the flow, execution and job that it is about.

What a line is about is said where a thread begins to work on it (`about`), so that lines of every module below carry
it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import IO

from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.service.model import ExecutionId, FlowId


class LogForm(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


_QUIET = ("uvicorn", "alembic", "py4j")
"""Programs whose lines below WARNING are left out."""
_NOTHING: Mapping[str, str | int] = {}
_ABOUT: ContextVar[Mapping[str, str | int]] = ContextVar("gobblin_about", default=_NOTHING)
_FIELD = "gobblin_about"


@contextmanager
def about(flow: FlowId | ExecutionId, job: str = "") -> Iterator[None]:
    """Let all lines of this thread, until the block ends, tell a flow, its execution and its job."""
    if isinstance(flow, ExecutionId):
        told: dict[str, str | int] = {"flow": str(flow.flow), "execution": flow.number}
    else:
        told = {"flow": str(flow)}
    if job:
        told["job"] = job
    token = _ABOUT.set(told)
    try:
        yield
    finally:
        _ABOUT.reset(token)


def _add_context(record: logging.LogRecord) -> bool:
    setattr(record, _FIELD, _ABOUT.get())
    return True


class TextFormatter(logging.Formatter):
    """`2026-11-22T18:00:00.123Z INFO server: the text [flow=shop/orders execution=1795...]`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without values of variables; a traceback follows it, with the texts of drivers in it."""
        told = " ".join(f"{name}={value}" for name, value in getattr(record, _FIELD, _NOTHING).items())
        name = record.name.removeprefix("gobblin_dagster.").removeprefix("service.")
        line = f"{_at(record)} {record.levelname} {name}: {record.getMessage()}" + (f" [{told}]" if told else "")
        return hidden(line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `at`, `level`, `logger`, `message`, `node`; `flow`, `execution`, `job`, `error` if known.

    Args:
        node: names the process.
    """

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without values of variables; a traceback is a field of it."""
        fields: dict[str, str | int] = {
            "at": _at(record),
            "level": record.levelname,
            "logger": record.name,
            "message": hidden(record.getMessage()),
            "node": self._node,
            **getattr(record, _FIELD, _NOTHING),
        }
        if record.exc_info:
            fields["error"] = hidden(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=True)


def start_logs(*, as_json: bool, node: str, stream: IO[str] | None = None) -> None:
    """Write all lines of this process from INFO on.

    Args:
        as_json: whether each line is a JSON object.
        node: names the process in JSON lines.
        stream: where to; default: standard error.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(node) if as_json else TextFormatter())
    # On the handler, not on a logger: lines of all modules pass here, in the thread that wrote them.
    handler.addFilter(_add_context)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
