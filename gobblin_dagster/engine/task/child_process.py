"""Run one work unit read from standard input, and print its TaskState: the child process of `multi_work_unit.py`."""

from __future__ import annotations

import json
import os
import sys

from gobblin_dagster.constructs.sql.stuck import let_process_end
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.utils.parent_process import end_with_parent
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.multi_work_unit import run_one


def main() -> None:
    """Read, run, print."""
    let_process_end()
    message = json.load(sys.stdin)
    end_with_parent(message["parent"])
    # What a construct prints, or programs that it starts, must not mix with the result.
    result = os.dup(1)
    os.dup2(2, 1)
    state = run_one(from_json(RunContext, message["run_context"]), from_json(TaskInput, message["task"]))
    with os.fdopen(result, "w", encoding="utf-8") as file:
        file.write(to_json(state))


if __name__ == "__main__":
    main()
