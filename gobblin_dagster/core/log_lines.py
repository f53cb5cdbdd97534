"""Lines of logs on standard error, which hold the texts of drivers and of user code."""

from __future__ import annotations

import logging

from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.utils.text import visible


class LogLine(logging.Formatter):
    """A line without values of variables; control characters are shown as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback below it."""
        return visible(hidden(super().format(record)))
