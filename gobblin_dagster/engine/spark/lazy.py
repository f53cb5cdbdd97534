"""Start Spark only when it is needed: planning and idle runs never import pyspark, and small runs need no Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.spark.needed import has_session, may_need_no_spark, task_place
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.runner import TaskPlace
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import SparkSpec

if TYPE_CHECKING:
    from gobblin_dagster.engine.processes.runner import ProcessRunner
    from gobblin_dagster.engine.spark.runner import SparkRunner


class LazySparkRunner:
    """A task runner on Spark that begins to start, in a thread, when the first work is found.

    With `start: when_needed`, processes of this machine begin to start instead, and Spark only for a run that needs it.
    """

    def __init__(self, spec: SparkSpec, log_file: Path | None = None) -> None:
        self.cores = spec.local_cores
        self._spec = spec
        self._log_file = log_file
        self._spark: SparkRunner | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()
        """Held to begin the one start: jobs of a service begin at the same time, in several threads."""
        self._thread: threading.Thread | None = None
        self._processes: ProcessRunner | None = None
        if may_need_no_spark(spec):
            # Imported here because other projects need none of it.
            from gobblin_dagster.engine.processes.runner import ProcessRunner  # noqa: PLC0415

            self._processes = ProcessRunner(spec.local_cores or 1, log_file)

    @property
    def is_started(self) -> bool:
        """True if Spark was started, or is being started; False if it did not start."""
        return self._thread is not None and self._error is None

    def start_early(self) -> None:
        """Begin to start what a small run needs; further calls do nothing."""
        if self._processes is None:
            self._start_spark()
        elif not self._has_spark():
            self._processes.start_early()

    def place(self, job: JobSpec, units: Iterable[WorkUnit]) -> TaskPlace | None:
        """Return where work units of a job would be run now; None if it is Spark whatever they are."""
        if self._spec.start == "always":
            return None
        return task_place(self._spec, job, units, is_running=self._has_spark())

    def run(
        self,
        runner: RunContext,
        packs: Sequence[Sequence[TaskInput]],
        on_result: Callable[[TaskState], None],
        stop: threading.Event,
    ) -> list[TaskState]:
        """Run all packs; raises EnvironmentFaultError if Spark, or a process, does not start."""
        if self._processes is not None:
            place = self.place(runner.spec, (task.unit for pack in packs for task in pack))
            if place is not None and not place.is_spark:
                return self._processes.run(runner, packs, on_result, stop)
        return self.started().run(runner, packs, on_result, stop)

    def execute_batches(self, paths: Sequence[str], output_root: str, *, verify_content: bool) -> list[str]:
        """Move a large number of files in Spark tasks; see `engine.commit.step_distribution.StepExecutor`."""
        return self.started().execute_batches(paths, output_root, verify_content=verify_content)

    def started(self) -> SparkRunner:
        """Start Spark, wait for it and return its runner; raises EnvironmentFaultError if it does not start."""
        self._start_spark()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None or self._spark is None:
            raise self._error or RuntimeError("Spark did not start")
        return self._spark

    def pages(self) -> dict[str, str]:
        """Return the addresses of Spark's pages, see `PagesRunner`; wait for a Spark that starts with pages."""
        if self._thread is None or (self._spark is None and self._spec.conf.get("spark.ui.enabled") != "true"):
            return {}
        try:
            return self.started().pages()
        except Exception:  # noqa: BLE001 - Spark did not start, which the run itself will say
            return {}

    def open_session(self) -> Any:
        """Start Spark and return its session, for a source that plans and reads with Spark; raises as `started`."""
        return self.started().open_session()

    def unfit(self) -> str:
        """Return why no further run can use it; empty if one can."""
        if self._error is not None:
            return "Spark did not start"
        return "" if self._spark is None or self._spark.is_alive() else "Spark has ended"

    def close(self) -> None:
        """Stop Spark, without waiting for its end, and the processes."""
        if self._processes is not None:
            self._processes.close()
        if self._spark is not None:
            self._spark.close()

    def _has_spark(self) -> bool:
        return self._thread is not None or has_session()

    def _start_spark(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
                thread.start()
                self._thread = thread  # after its start, as others join it

    def _start(self) -> None:
        try:
            # Imported here because the import takes half a second, which an idle run need not spend.
            from gobblin_dagster.engine.spark.runner import SparkRunner  # noqa: PLC0415

            if self._log_file is not None:  # the folder may not exist, if the state is stored elsewhere
                self._log_file.parent.mkdir(parents=True, exist_ok=True)
            self._spark = SparkRunner.start(self._spec, self._log_file)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that needs Spark
            self._error = error


class KeptSparkRunner(LazySparkRunner):
    """A task runner of a process that runs several commands: Spark stays when a command closes it."""

    def close(self) -> None:
        """End what the command began: the next one that reads with Spark gets a session of its own."""
        if self._spark is None:
            return
        if self._spec.remote:  # Spark runs in the server: nothing would stay here but the session
            self._spark.close()
            self._spark = self._thread = None
        else:
            self._spark.renew_session()

    def end(self) -> None:
        """Stop Spark, without waiting for its end."""
        super().close()
