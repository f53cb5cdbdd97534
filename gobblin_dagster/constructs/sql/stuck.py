"""End the process if DuckDB does not stop a statement that has taken too long.

DuckDB looks for an interrupt only between two steps of a statement, and a function of one value is one step: for two
texts of a million letters, `levenshtein` takes hours. Nothing but the end of the process ends that. Work units run in
processes that may end: the unit is then run alone, and fails with the last line that its process wrote. So does a
command: `check` and `plan` prepare expressions, for which DuckDB evaluates constants, and merges run in the driver.
"""

from __future__ import annotations

import os
import sys

from gobblin_dagster.core.secrets import hidden

EXIT_CODE = 1
_may_end = False


def let_process_end() -> None:
    """Allow this process to be ended; for processes that run nothing but work units or commands."""
    global _may_end  # noqa: PLW0603 - a fact of the process
    _may_end = True


def end_process(expression: str, limit_s: float) -> None:
    """End this process, naming the expression on standard error; do nothing if the process may not be ended."""
    if _may_end:
        text = (
            f"{expression} took more than {limit_s:g} s for one batch and cannot be interrupted; its process was ended"
        )
        sys.stderr.write(f"{hidden(text)}\n")
        sys.stderr.flush()
        os._exit(EXIT_CODE)
