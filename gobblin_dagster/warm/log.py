"""The log of a worker."""

from __future__ import annotations

import logging

from gobblin_dagster.core.log_lines import LogLine


def start_log() -> None:
    """Write what this process logs, with times, on standard error; of its own server, all that it does."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogLine("%(asctime)s %(message)s"))
    logging.basicConfig(handlers=[handler], force=True)
    logging.getLogger("gobblin_dagster.warm").setLevel(logging.INFO)
