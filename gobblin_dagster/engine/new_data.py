"""Poll for new data, as sensors do: cheap, without waiting long, and with Spark in a process of its own.

Knows nothing of Dagster: `orchestration.sensors` asks, and decides what to do with the answer.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import FrameSource
from gobblin_dagster.core.errors import EnvironmentFaultError, GobblinDagsterError
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.secrets import known_in, remember
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.spark.lazy import LazySparkRunner
from gobblin_dagster.engine.task.runner import SessionRunner
from gobblin_dagster.spec.job import ConstructSpec, JobSpec
from gobblin_dagster.spec.project import SparkSpec
from gobblin_dagster.state.store import StateStore

IDLE_S = 900.0
"""Seconds without a question after which the process with Spark ends; the next question starts another."""
LIMIT_S = 600.0
"""Seconds after which a look with Spark is given up and its process killed."""


@dataclass(frozen=True, slots=True)
class NewData:
    """A dataset that a run would work on, with the facts that make this finding different from others."""

    dataset_urn: str
    high: str
    version: int
    """Version of the dataset's state at the time of the poll; a commit since then makes the finding outdated."""
    startpoint: str = ""


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of one poll."""

    datasets: int = 0
    new: tuple[NewData, ...] = ()
    problems: tuple[str, ...] = ()
    """Why datasets cannot be planned, one each."""


def look(
    project: Project, job: JobSpec, spark: SessionRunner | None = None, *, store: StateStore | None = None
) -> PollResult:
    """Plan a job as `plan_job` does, but count no rows and read no schemas.

    A job whose runs read everything has new data if the position to read up to differs from the committed one. A given
    `store` stays open; default: open one and close it. Raises as `make_plan`.
    """
    with project.use_store(store) as open_store:
        plan = JobContext.of(project, _cheap(job), open_store, runner=spark).plan(is_poll=True)
        states = open_store.load_readable_states(job.job)[0] if job.extract.reads_everything else {}
    marks = {urn: str(state.watermark) for urn, state in states.items()}
    new = [
        NewData(one.dataset_urn, str(one.expected_high), one.version_read, "+".join(s.id for s in one.startpoints))
        for one in plan.datasets
        if one.is_moving and (one.startpoint is not None or marks.get(one.dataset_urn) != str(one.expected_high))
    ]
    return PollResult(len(plan.datasets), tuple(new), tuple(one.problem for one in plan.datasets if one.problem))


def plans_with_spark(job: JobSpec) -> bool:
    """True if Spark reads the job's source."""
    return issubclass(registry.load(ConstructKind.SOURCE, job.source.type), FrameSource)


def _cheap(job: JobSpec) -> JobSpec:
    """Return the job without what its plans do by reading files: counting rows, and inferring types of columns."""
    fields = registry.load(ConstructKind.SOURCE, job.source.type).Options.model_fields
    changes: dict[str, object] = {"count_rows": False} if "count_rows" in fields else {}
    if "format" in fields and (written := job.source.options.get("format")):
        chosen = ConstructSpec.model_validate(written)
        if "infer" in registry.load(ConstructKind.FORMAT, chosen.type).Options.model_fields:
            changes["format"] = chosen.options | {"type": chosen.type, "infer": False}
    return job.model_copy(update={"source": job.source.model_copy(update=changes)})


class SharedStore:
    """A state store for several polls: opening one costs more than a poll. It is closed once nobody uses it any more.

    A poll that is late goes on using it after its owner has let it go.
    """

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self._users = 1
        self._lock = threading.Lock()

    def share(self) -> None:
        """Count one more user."""
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """Count one user less, and close the store after the last one."""
        with self._lock:
            self._users -= 1
            is_last = not self._users
        if is_last:
            self.store.close()


class NewDataPoller:
    """Polls for new data of one job in a thread. A caller waits a little, and gets a late answer at its next call."""

    def __init__(self, see: Callable[[StateStore | None], PollResult]) -> None:
        self._see = see
        self._lock = threading.Lock()
        self._answer: Future[PollResult] | None = None
        self._since = 0.0

    @classmethod
    def of(cls, project: Project, job: JobSpec, spark: SparkSpec, log_file: Path | None = None) -> NewDataPoller:
        """Return the poller of a job; jobs with equal Spark settings share the process with Spark."""

        def see(store: StateStore | None) -> PollResult:
            if plans_with_spark(job):
                return _poll_process(spark.model_dump_json(), log_file).ask(project, job)
            return look(project, job, store=store)

        return cls(see)

    @property
    def seconds(self) -> float:
        """Seconds since the current poll began."""
        return time.monotonic() - self._since

    def ask(self, patience_s: float, shared: SharedStore | None = None) -> PollResult | None:
        """Return the result of a poll that begins now or was begun by an earlier call; None after `patience_s` seconds.

        A poll that begins now uses the `shared` store; default: it opens one. Raises what the poll raised: as `look`,
        and EnvironmentFaultError if Spark did not start or was lost.
        """
        with self._lock:
            if self._answer is None:
                self._answer, self._since = Future(), time.monotonic()
                if shared is not None:
                    shared.share()
                run = (self._answer, shared)
                # A daemon thread: the server can end while a source does not answer.
                threading.Thread(target=self._run, args=run, name="new-data-poller", daemon=True).start()
            answer = self._answer
        try:
            return answer.result(patience_s)
        except TimeoutError:
            if answer.done():
                raise  # the source raised it
            return None
        finally:
            with self._lock:
                if answer.done() and self._answer is answer:
                    self._answer = None

    def _run(self, answer: Future[PollResult], shared: SharedStore | None) -> None:
        try:
            result = self._see(shared.store if shared else None)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
            answer.set_exception(error)
        else:
            answer.set_result(result)
        finally:
            if shared is not None:
                shared.close()


class SparkPollProcess:
    """A process that polls with Spark; the first question starts it, and it ends if no question comes for a while.

    It is a process because Spark's JVM ends together with it, however it ends; it also ends when our process ends.
    """

    def __init__(self, spark: SparkSpec, log_file: Path | None = None, idle_s: float = IDLE_S) -> None:
        self._settings = (spark, log_file, idle_s)
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, project: Project, job: JobSpec, limit_s: float = LIMIT_S) -> PollResult:
        """Poll a job; questions are answered one after the other. Raises as `NewDataPoller.ask`."""
        with self._lock:
            answer = self._exchange(self._pipe, project, job, limit_s) if self._pipe is not None else None
            if answer is None:  # there was no process, or it has ended meanwhile
                answer = self._exchange(self._start(), project, job, limit_s)
        if answer is None:
            raise EnvironmentFaultError(
                problem=f"The process that looks for new data of job {job.job!r} with Spark died.",
                hint=f"Spark's log is {self._settings[1]}; `gobblin plan {job.job}` does the same here.",
            )
        if isinstance(answer, GobblinDagsterError):
            raise answer
        return answer

    @property
    def process_id(self) -> int | None:
        """Id of the running process; None before the first question."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """End the process and its Spark, after it has answered."""
        with self._lock:
            self._end()

    def _exchange(
        self, pipe: Connection, project: Project, job: JobSpec, limit_s: float
    ) -> PollResult | GobblinDagsterError | None:
        """Return the answer; None if the process has ended."""
        try:
            pipe.send((project, job, known_in(job.model_dump_json())))
            if pipe.poll(limit_s):
                answer: PollResult | GobblinDagsterError = pipe.recv()
                return answer
        except (EOFError, OSError):
            self._end()
            return None
        self._end()
        return EnvironmentFaultError(
            problem=f"Looking for new data of job {job.job!r} with Spark took more than {limit_s:.0f} s, so it was "
            "stopped.",
            hint="Give the job a schedule instead of the sensor.",
        )

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, *self._settings)
        self._process = context.Process(target=_serve, args=arguments, name="new-data-poller", daemon=True)
        self._process.start()
        theirs.close()  # so that each side notices if the other side ends
        return self._pipe

    def _end(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            self._process.kill()  # its Spark ends with it
            self._process.join()
            self._process = None


def _serve(pipe: Connection, spark: SparkSpec, log_file: Path | None, idle_s: float) -> None:
    """Answer questions until none has come for `idle_s` seconds, or the asking process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server; the closed pipe then ends this process
    runner = LazySparkRunner(spark, log_file)
    try:
        while pipe.poll(idle_s):
            project, job, secrets = pipe.recv()
            remember(secrets)
            pipe.send(_answer(project, job, runner))
            if runner.is_started and not _is_alive(runner):
                return  # the next question starts another process, with another Spark
    except (EOFError, OSError):
        pass
    finally:
        with suppress(Exception):  # a Spark that has ended cannot be stopped, and the process ends anyway
            runner.close()


def _answer(project: Project, job: JobSpec, runner: LazySparkRunner) -> PollResult | GobblinDagsterError:
    try:
        return look(project, job, runner)
    except GobblinDagsterError as error:
        return error
    except Exception as error:  # noqa: BLE001 - sent as text to the asking process, because it may not be picklable
        return EnvironmentFaultError(
            problem=f"Looking for new data of job {job.job!r} failed: {describe_failure(error).message}.",
            hint=f"`gobblin plan {job.job}` does the same here.",
        )


def _is_alive(runner: LazySparkRunner) -> bool:
    try:
        return not runner.unfit() and bool(runner.open_session().version)
    except Exception:  # noqa: BLE001 - whatever the error is, this Spark does not answer any more
        return False


@cache
def _poll_process(spark_json: str, log_file: Path | None) -> SparkPollProcess:
    # Never closed: it serves all sensors of this process, and ends by itself.
    return SparkPollProcess(SparkSpec.model_validate_json(spark_json), log_file)
