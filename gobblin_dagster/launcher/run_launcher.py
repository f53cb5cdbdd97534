"""GobblinWarmRunLauncher: starts Dagster's runs of gobblin_dagster in a warm worker, which has Python and Spark ready.

The worker is another one than that of `gobblin run`, because Dagster's environment is another one than a terminal's. It
keeps no queue: a run that waited in a worker could not be terminated. Each run that the worker cannot take at once
starts as Dagster's own launcher starts it, in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import ValidationError

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.launcher import _internal
from gobblin_dagster.launcher._internal import (
    CheckRunHealthResult,
    ConfigurableClassData,
    JobPythonOrigin,
    LaunchRunContext,
    WorkerStatus,
)
from gobblin_dagster.spec.load import find_project, load_project
from gobblin_dagster.spec.project import SparkSpec
from gobblin_dagster.warm.address import DAGSTER, WarmAddress
from gobblin_dagster.warm.client import DAGSTER_LOG, Order, Refusal, ask_at, begin_in_worker
from gobblin_dagster.warm.messages import Message
from gobblin_dagster.warm.process import program

OP_TAG = "gobblin/job"
"""Tag of the ops of ours; other runs of a code location start as always."""
PLACE_TAG = ".dagster/gobblin_worker"
"""Tag of a run: where its worker is. Dagster's pages hide tags with this beginning."""
PROJECT_MODULE = "gobblin_dagster.orchestration.project"
"""Definitions of a project without a `definitions.py`."""
LOCATION = "gobblin"
"""Name of the code location of `gobblin dev`. It must not change: Dagster stores under it which runs a sensor has
requested."""
ANSWER_S = 10.0
"""Seconds in which a worker must answer a question."""
_RUNNER = "gobblin_dagster.orchestration.in_worker"
_COMMAND = "dagster-run"


class GobblinWarmRunLauncher(dg.DefaultRunLauncher):
    """Starts runs of gobblin_dagster in a warm worker of their project, and all other runs as Dagster does.

    Args:
        inst_data: where Dagster read the configuration.
        keep_warm: how long a worker waits for the next run (`90s`, `15m`, `2h`).
        projects: project folder by name of a code location; default: the location `gobblin` has the project in
            GOBBLIN_PROJECT, or the nearest one from the current folder upwards, as `gobblin dev` has it.

    Raises:
        dagster.DagsterInvalidDefinitionError: `keep_warm` is no such text.
    """

    def __init__(
        self,
        inst_data: ConfigurableClassData | None = None,
        keep_warm: str = "15m",
        projects: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(inst_data)
        try:
            self._keep_s = SparkSpec(keep_warm=keep_warm).keep_warm_s
        except ValidationError:
            problem = f"run_launcher: `keep_warm` is {keep_warm!r}; expected a number and a unit: `90s`, `15m`, `2h`."
            raise dg.DagsterInvalidDefinitionError(problem) from None
        self._projects = dict(projects or {})

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Return the settings in `dagster.yaml`."""
        return {
            "keep_warm": dg.Field(
                str, default_value="15m", description="How long a worker waits for the next run: `90s`, `15m`, `2h`."
            ),
            "projects": dg.Field(
                dg.Map(str, str, key_label_name="code location"),  # type: ignore[no-untyped-call]  # Dagster's
                default_value={},
                description="Project folder by name of a code location; default: the one of `gobblin dev`.",
            ),
        }

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> Self:
        """Return the launcher that `dagster.yaml` describes."""
        return cls(inst_data, **config_value)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Start a run in the worker of its project; if that cannot be, as Dagster does, and tell why in its log."""
        run, origin = context.dagster_run, context.job_code_origin
        root = self._root(run)
        if root is None or origin is None or OP_TAG not in _internal.tags_of_steps(run, self._instance):
            super().launch_run(context)
            return
        begun = self._begun(run, origin, root)
        if isinstance(begun, Refusal):
            self._tell(run, f"The run starts in a process of its own, not in the warm worker: {begun.reason}.")
            super().launch_run(context)
        else:
            self._tell(run, f"The run is in the warm worker of {root} (pid: {begun}).")

    def terminate(self, run_id: str) -> bool:
        """Tell the worker that has a run to end it, as Dagster's button does; return whether a worker had it."""
        run = self._instance.get_run_by_id(run_id)
        place = _Place.of(run) if run else None
        if run is None or place is None:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]  # Dagster's
        if run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        try:
            answer = place.ask("interrupt", arguments=[_COMMAND, run_id])
        except OSError as error:
            self._tell(run, f"The worker of the run was not reached: {error}")
            return False
        if answer is not None and answer["was_running"]:
            return True
        now = self._instance.get_run_by_id(run_id)
        if now is not None and not now.is_finished:
            self._instance.report_run_canceled(now, "The worker that had the run is gone.")
        return False

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True: Dagster's run monitoring finds runs whose worker was killed."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Tell whether the process that has a run is alive; of runs in processes of their own, nothing is known."""
        place = _Place.of(self._instance.get_run_by_id(run.run_id) or run)
        if place is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "It is not in a warm worker, so it cannot be checked.")
        try:
            answer = place.ask("status")
        except OSError as error:  # it does not answer, or this process may not ask: no proof that it has ended
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"Its worker was not reached: {error}")
        if answer is not None and answer["runs_now"] == [_COMMAND, run.run_id]:
            return CheckRunHealthResult(WorkerStatus.RUNNING, run_worker_id=str(answer["pid"]))
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "The worker that had the run is gone.")

    def _root(self, run: dg.DagsterRun) -> Path | None:
        """Return the project of a run's code location."""
        if run.remote_job_origin is None:
            return None
        location = run.remote_job_origin.location_name
        if self._projects:
            return Path(self._projects[location]) if location in self._projects else None
        try:
            return find_project(Path(os.environ.get("GOBBLIN_PROJECT") or ".")) if location == LOCATION else None
        except GobblinDagsterError:
            return None

    def _begun(self, run: dg.DagsterRun, origin: JobPythonOrigin, root: Path) -> int | Refusal:
        if origin.executable_path != sys.executable:
            return Refusal(f"its code location has another Python, {origin.executable_path}")
        try:
            address = WarmAddress.of(root, DAGSTER)
            order = Order(
                [_COMMAND, run.run_id],
                _internal.order_of(run, origin, self._instance),
                self._noted(run, origin, root),
            )
        except (OSError, GobblinDagsterError) as error:
            return Refusal(str(error))
        # Before the run can begin, so that it can be terminated and checked from then on.
        self._instance.add_run_tags(run.run_id, {PLACE_TAG: _Place(socket.gethostname(), address.path).tag})
        return begin_in_worker(address, order, program(root, DAGSTER, _RUNNER, self._keep_s), root / DAGSTER_LOG)

    def _noted(self, run: dg.DagsterRun, origin: JobPythonOrigin, root: Path) -> dict[str, str]:
        """Return what else must be as at a worker's start."""
        location = run.remote_job_origin.location_name if run.remote_job_origin else ""
        noted = {
            "(current folder)": str(Path.cwd()),
            "(keep_warm)": str(self._keep_s),
            "(variables of .env)": _digest(sorted(_internal.injected(self._instance, location).items())),
        }
        if _internal.module_of(origin) != PROJECT_MODULE:
            # A module of the user's own is loaded once by a worker, with the job files that it reads.
            noted["(job files)"] = _digest(_marks(root / load_project(root).jobs))
        return noted

    def _tell(self, run: dg.DagsterRun, message: str) -> None:
        self._instance.report_engine_event(message, run, cls=type(self))


class _Place:
    """The machine and the socket of a run's worker, from a tag of the run."""

    def __init__(self, host: str, path: Path) -> None:
        self._host = host
        self._path = path

    @classmethod
    def of(cls, run: dg.DagsterRun) -> Self | None:
        if PLACE_TAG not in run.tags or _internal.is_cold(run):
            return None
        found = json.loads(run.tags[PLACE_TAG])
        return cls(found["host"], Path(found["socket"]))

    @property
    def tag(self) -> str:
        return json.dumps({"host": self._host, "socket": str(self._path)})

    def ask(self, kind: str, **fields: Any) -> Message | None:
        """Return the worker's answer; None if there is no worker. Raises OSError."""
        if self._host != socket.gethostname():
            raise OSError(f"it is on {self._host}, this process on {socket.gethostname()}")
        try:
            return ask_at(WarmAddress(self._path), kind, timeout_s=ANSWER_S, **fields)
        except FileNotFoundError:
            return None


def _marks(folder: Path) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of change of all files of a folder."""
    found = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return [(str(path), state.st_size, state.st_mtime_ns) for path, state in found]


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogateescape")).hexdigest()[:16]
