"""A worker: a forked process that runs packs of work units, one after the other, as a Spark task does.

The driver sends a line per pack, and `stop`. The worker sends a line per TaskState, and `done` after each pack.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from typing import TextIO

from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.multi_work_unit import run_pack

STOP = "stop"
"""From the driver: begin no further work unit of this pack."""
DONE = "done"
"""From the worker: the pack has ended."""
ERROR = "error "
"""From the worker: the pack could not be run; the reason follows, as a JSON text."""
EXIT = "exit "
"""From the fork server: the worker has ended; its exit code follows, negative for a signal."""


def pack_line(run_context_json: str, tasks_json: list[str]) -> str:
    """Return the line that asks for a pack."""
    return json.dumps({"run_context": run_context_json, "tasks": tasks_json})


def serve_packs(connection: socket.socket) -> None:
    """Run packs until the driver closes its end of the socket: then this process ends at once, whatever it does."""
    stop = threading.Event()
    packs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, packs, stop), name="driver", daemon=True).start()
    with connection.makefile("w", encoding="utf-8") as answers:
        while True:
            _run(packs.get(), answers, stop)


def _listen(connection: socket.socket, packs: queue.SimpleQueue[str], stop: threading.Event) -> None:
    try:
        for line in connection.makefile("r", encoding="utf-8"):
            if line.rstrip("\n") == STOP:
                stop.set()
            else:
                stop.clear()
                packs.put(line)
    except OSError:
        pass  # the driver died
    os._exit(0)


def _run(line: str, answers: TextIO, stop: threading.Event) -> None:
    pack = json.loads(line)
    try:
        tasks = (from_json(TaskInput, task) for task in pack["tasks"])
        for state in run_pack(from_json(RunContext, pack["run_context"]), tasks, stop.is_set):
            answers.write(to_json(state) + "\n")
            answers.flush()
        answers.write(DONE + "\n")
    except Exception as error:  # noqa: BLE001 - such a pack is lost, as one whose Spark task fails is
        answers.write(ERROR + json.dumps(describe_failure(error).message) + "\n")
    answers.flush()
