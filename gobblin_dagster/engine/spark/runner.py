"""Start Spark quickly and run packs of work units as one Spark job. The only pyspark in `engine`.

DataFrame API only, so the same code runs on local Spark, a cluster and a Spark Connect server.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import re
import shlex
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pyspark
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.spark.errors import said_by_spark, spark_gone
from gobblin_dagster.core.constructs import FrameSource
from gobblin_dagster.core.errors import EnvironmentFaultError, SparkLostError
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.memory import address_space
from gobblin_dagster.core.secrets import hidden, is_secret_name
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.task_state import TaskFailure, TaskState, WorkingState
from gobblin_dagster.core.utils.environment import lasting
from gobblin_dagster.engine.commit.step_distribution import run_batches_in_arrow
from gobblin_dagster.engine.spark import worker_daemon
from gobblin_dagster.engine.spark.class_data import fast_start_options
from gobblin_dagster.engine.spark.frame_units import FrameRun
from gobblin_dagster.engine.spark.java import find_java
from gobblin_dagster.engine.task.checkpoint import TaskCheckpoints
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.multi_work_unit import run_packs_in_arrow, unrun, write_packs
from gobblin_dagster.spec.project import SparkSpec
from gobblin_dagster.storage import open_storage

MAX_CLOSURE_BYTES = 1 << 20
"""Plans above this size are sent as pack files on staging storage instead of in the task's code."""
POLL_S = 0.2
"""Seconds between two looks at the checkpoints while Spark works."""
STOP_S = 30.0
"""Seconds in which Spark must stop; locally it takes less than one, a cluster may keep logs of events to write."""
CONNECT_TRIES = 9
"""Times that a call to a server of Spark Connect is tried again, during about a minute. By itself, Spark Connect tries
for ten minutes, says nothing, and begins again with the next call."""
_LONGEST_WAIT_MS = 10_000
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 30_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""Find out that a server of Spark Connect does not answer any more: a query of one that is frozen would never end. A
server of gRPC in Java closes connections that ask more often than every five minutes."""
_LOG = logging.getLogger(__name__)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")

_READING = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # Texts without a zone must mean the same instants on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Nor may files be left out that cannot be read, whatever a cluster is set up for: the watermark moves past them.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreInvalidPartitionPaths": "false",
    # Values that do not fit are errors: not null, nor the day after the last one of a month.
    "spark.sql.sources.validatePartitionColumns": "true",
    "spark.sql.legacy.json.allowEmptyString.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}
"""Settings of a session that reads with Spark itself; task runs alone do not need them."""
_ACCESS_KEY = re.compile(r"access[.]?key", re.IGNORECASE)
"""Spark redacts settings of this name too (`spark.redaction.regex`), though Hadoop's `access.key` is but an id."""
_SUBMIT = "PYSPARK_SUBMIT_ARGS"
"""The variable with what pyspark adds to the command line of `spark-submit`."""


class SparkRunner:
    """Runs each run of a job as one Spark job, on a given session.

    `start` makes a session, which `close` stops. A session given from outside (Dagster's resource, a test) is used as
    it is and never stopped.
    """

    def __init__(
        self,
        session: SparkSession,
        cores: int | None = None,
        *,
        owns_session: bool = False,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.cores = cores
        self._conf = conf or {}
        self.session = session
        """Also for callers that read published data with Spark."""
        self._owns_session = owns_session
        self._is_read = False

    @classmethod
    def start(cls, spec: SparkSpec, log_file: Path | None = None) -> SparkRunner:
        """Start Spark, or connect to it.

        Args:
            spec: where Spark runs, and its settings.
            log_file: receives the output of the JVM; default: the output is dropped.

        Raises:
            EnvironmentFaultError: Java is missing or Spark did not start; the message names the log.
        """
        if spec.remote:
            return cls(_connect(spec), owns_session=True, conf=spec.conf)
        existing = existing_session()
        if existing is not None:
            return cls(existing, spec.local_cores)
        return cls(_start_classic(spec, log_file), spec.local_cores, owns_session=True, conf=spec.conf)

    def run(
        self,
        runner: RunContext,
        packs: Sequence[Sequence[TaskInput]],
        on_result: Callable[[TaskState], None],
        stop: threading.Event,
    ) -> list[TaskState]:
        """Run all packs as one Spark job and return one TaskState per work unit, in the order given.

        `on_result` is called for each work unit while Spark works. After `stop` is set, running work units end and no
        other begins. A work unit that Spark lost for good is returned as failed; the other units are not affected.
        """
        tasks = [task for pack in packs for task in pack]
        spec = runner.spec
        if issubclass(registry.load(ConstructKind.SOURCE, spec.source.type), FrameSource):
            source = registry.create(ConstructKind.SOURCE, spec.source, runner.construct_context(spec))
            return FrameRun(self.open_session(), runner, source, to_arrow_schema).run(tasks, on_result, stop)
        with _spark_needed():
            self._tell_variables()
        checkpoints = TaskCheckpoints(open_storage(runner.output_root, durable=False), runner.staging_root)
        texts = [[to_json(task) for task in pack] for pack in packs]
        inline = sum(len(text) for pack in texts for text in pack) <= MAX_CLOSURE_BYTES
        if not inline:
            write_packs(runner, texts)
        job = _SparkJob(self.session, to_json(runner), texts, inline)
        job.start()
        stopping = False
        while job.is_running(POLL_S):
            for state in checkpoints.new_results():
                on_result(state)
            if stop.is_set() and not stopping:
                # On a full disk the stop file cannot be written; the next look tries again.
                with suppress(OSError):
                    checkpoints.request_stop()
                    stopping = True
        for state in checkpoints.new_results():
            on_result(state)
        return job.states(tasks, checkpoints)

    def execute_batches(self, paths: Sequence[str], output_root: str, *, verify_content: bool) -> list[str]:
        """Run batches of commit steps in Spark tasks, one each; see `engine.commit.step_distribution.StepExecutor`."""
        function = functools.partial(run_batches_in_arrow, list(paths), output_root, verify_content)
        try:
            frame = self.session.range(0, len(paths), 1, len(paths))
            rows = frame.mapInArrow(function, "number bigint, result string").collect()
        except Exception as error:
            problem = f"Spark lost commit steps: {_why_lost(error)}."
            raise SparkLostError(problem=problem, log=_log_of(self.session)) from error
        return [result for _, result in sorted((row[0], row[1]) for row in rows)]

    def _tell_variables(self) -> None:
        """Let workers of this machine have the variables that were set since Spark started, as a notebook may do.

        Spark starts other workers for another environment. A variable that was removed keeps its value there.
        """
        context: Any = getattr(self.session, "_sc", None)  # a session of Spark Connect has none
        if context is None or not context.master.startswith("local"):
            return
        if not _Jvm.environment:
            _Jvm.environment = lasting(dict(context._jvm.System.getenv()))  # the session is from outside
        told = _Jvm.environment | context.environment
        changed = {name: value for name, value in lasting(os.environ).items() if told.get(name) != value}
        if changed:
            conf = context.getConf()
            context.environment.update(
                {name: value for name, value in changed.items() if not conf.contains(f"spark.executorEnv.{name}")}
            )

    def open_session(self) -> SparkSession:
        """Return the session for a source that reads with Spark; our own session is set up for it first."""
        for kind in ("SQL", "DataFrame"):
            # These loggers write each error that we translate as pages of JSON to standard error.
            PySparkLogger.getLogger(f"{kind}QueryContextLogger").disabled = True
        if self._owns_session:
            for key, value in _READING.items():
                if key not in self._conf:
                    with _spark_needed():
                        self.session.conf.set(key, value)
        self._is_read = True
        return self.session

    def pages(self) -> dict[str, str]:
        """Return the addresses of Spark's pages, see `PagesRunner`.

        Those of the application if `spark.ui.enabled` is true, and of the history server that
        `spark.yarn.historyServer.address` names if it gets events (`spark.eventLog.enabled`). Over Spark Connect, the
        server's pages are not known.
        """
        context: Any = getattr(self.session, "_sc", None)  # a session of Spark Connect has none
        if context is None or not self.is_alive():
            return {}
        found = {"pages": context.uiWebUrl} if context.uiWebUrl else {}
        server = self._conf.get("spark.yarn.historyServer.address")
        if server and self._conf.get("spark.eventLog.enabled") == "true":
            found["history"] = f"http://{server}/history/{context.applicationId}"
        return found

    def renew_session(self) -> None:
        """Give the next reader a session without the settings, views and cached tables of earlier ones."""
        if self._is_read and self._owns_session and self.is_alive():
            self.session = self.session.newSession()
            self._is_read = False

    def is_alive(self) -> bool:
        """Return whether the JVM that this process started runs, and has not stopped Spark; True if it started none.

        A cluster that gives an application up stops its Spark for good, and the JVM goes on.
        """
        process = getattr(_Jvm.gateway, "proc", None)
        context: Any = getattr(self.session, "_sc", None)  # a session of Spark Connect has none
        if process is None or context is None:
            return True
        if process.poll() is not None:
            return False
        try:
            return not context._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - whatever the error is, this Spark does not answer any more
            return False

    def start_early(self) -> None:
        """Do nothing: the session has started."""

    def close(self) -> None:
        """Stop a session that this runner started, without waiting for the JVM to end.

        Raises nothing: what the run committed stays committed, even if the JVM died meanwhile and cannot be stopped. A
        JVM that does not answer (it is frozen, or collects garbage for ever) is killed after `STOP_S`, or when Ctrl-C
        ends the wait. A server of Spark Connect is left alone then: it ends sessions that nobody uses.
        """
        if not self._owns_session:
            return
        is_ours = getattr(self.session, "_sc", None) is not None  # a session of Spark Connect has none
        process = getattr(_Jvm.gateway, "proc", None) if is_ours else None
        stopped = threading.Event()  # a thread whose `join` was interrupted seems to have ended

        def stop() -> None:
            with _without_trace():
                stop_session(self.session)
            stopped.set()

        threading.Thread(target=stop, name="spark-stop", daemon=True).start()
        try:
            stopped.wait(STOP_S)
        finally:
            if not stopped.is_set():
                _LOG.warning("Spark does not answer, so its end is not waited for.")
                if process is not None:
                    process.kill()
                    stopped.wait(STOP_S)


def stop_session(session: SparkSession) -> None:
    """Stop a session for good: one of Spark Connect is not closed again when Python collects it.

    Its `__del__` shuts the thread pool that all sessions of the process share. If Python collects the session while the
    same thread gives that pool work, it would wait for its own lock for ever. A server that is away is asked once, and
    not again at the end of the process.
    """
    client: Any = getattr(session, "_client", None)  # a session without Spark Connect has none
    if client is not None:
        for policy in client.get_retry_policies():
            policy.max_retries = 0  # ends those that go on: of what the server was to forget of queries that failed
        client.set_retry_policies([])
        atexit.unregister(client._cleanup_ml_cache)
    try:
        session.stop()
    finally:
        if client is not None:
            client.close = int  # does nothing


@contextmanager
def _spark_needed() -> Iterator[None]:
    """Raise SparkLostError if the JVM has ended, instead of an error of the connection to it."""
    try:
        yield
    except Exception as error:
        if (gone := spark_gone(error)) is not None:
            raise gone from error
        raise


@contextmanager
def _without_trace() -> Iterator[None]:
    """Log in one line that Spark could not be stopped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    except Exception as error:  # noqa: BLE001 - whatever the error is, the session is finished, and so is its work
        _LOG.info("Spark had ended before it was stopped: %s", error)


class _SparkJob:
    """One Spark job, collected in a thread so that the driver can watch the checkpoints meanwhile."""

    def __init__(self, session: SparkSession, context_json: str, packs: Sequence[Sequence[str]], inline: bool) -> None:
        self._session = session
        self._count = len(packs)
        self._function = functools.partial(run_packs_in_arrow, context_json, packs if inline else None)
        self._rows: list[str] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._collect, name="spark-job", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_running(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return self._thread.is_alive()

    def states(self, tasks: Sequence[TaskInput], checkpoints: TaskCheckpoints) -> list[TaskState]:
        """Return one TaskState per task, from the returned rows or, if the job failed, from the checkpoints."""
        by_unit = {state.work_unit_id: state for state in (from_json(TaskState, row) for row in self._rows)}
        if any(task.unit.id not in by_unit for task in tasks):
            by_unit = checkpoints.all_results() | by_unit
        return [by_unit.get(task.unit.id) or unrun(task, WorkingState.FAILED, self._lost()) for task in tasks]

    def _collect(self) -> None:
        try:
            # range(0, n, 1, n) gives exactly one number per partition; repartition does not.
            frame = self._session.range(0, self._count, 1, self._count)
            self._rows = [row[0] for row in frame.mapInArrow(self._function, "state string").collect()]
        except Exception as error:  # noqa: BLE001 - a failed Spark job fails only its unfinished work units
            self._error = error

    def _lost(self) -> TaskFailure:
        if self._error and (lacking := _lacking_package(self._error)):
            return describe_failure(lacking)
        why = _why_lost(self._error) if self._error else "no result came back"
        problem = f"Spark lost this work unit: {why}."
        return describe_failure(SparkLostError(problem=problem, log=_log_of(self._session)))


def _lacking_package(error: Exception) -> EnvironmentFaultError | None:
    """Return our error if no Python worker could begin, because its machine lacks a package; None for any other."""
    if spark_gone(error) is not None or (found := _NO_MODULE.search(str(error))) is None:
        return None
    return EnvironmentFaultError(
        problem=f"Spark's Python workers lack the package {found[1]}.",
        hint="Install gobblin-dagster, with the extras of the job, for the Python of each executor.",
    )


def _why_lost(error: Exception) -> str:
    """Return why a Spark job failed; without a period at the end."""
    gone = spark_gone(error)
    return ("its JVM crashed or was killed" if gone else said_by_spark(error)).rstrip(".")


def _log_of(session: SparkSession) -> str:
    """Return where Spark's log is, for people; of a server's address neither user nor token."""
    client: Any = getattr(session, "_client", None)  # a session without Spark Connect has none
    return SparkLostError.log if client is None else f"the log of the Spark Connect server {client._builder.endpoint}"


def existing_session() -> SparkSession | None:
    """Return the session of the process, whichever thread made it: there can be only one."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _connect(spec: SparkSpec) -> SparkSession:
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - optional packages
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - optional packages
    from pyspark.sql.connect.session import SparkSession as RemoteSession  # noqa: PLC0415 - optional packages

    remote = str(spec.remote)
    builder: Any = SparkSession.builder.remote(remote)
    if remote.startswith("sc://") and existing_session() is None:
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as `remote` does
        builder = RemoteSession.builder.channelBuilder(DefaultChannelBuilder(remote, list(KEEPALIVE)))
    client: Any = getattr(builder.getOrCreate(), "_client", None)  # nothing was asked of the server yet
    if client is not None:
        client.set_retry_policies([DefaultPolicy(max_retries=CONNECT_TRIES, max_backoff=_LONGEST_WAIT_MS)])
    for key, value in spec.conf.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _start_classic(spec: SparkSpec, log_file: Path | None) -> SparkSession:
    # Workers must run this interpreter: without the setting they use the system's Python and die.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    java = Path(find_java().path).resolve()  # starts Java, so an error of Java is reported before Spark fails
    is_local = spec.local_cores is not None
    spark = f"{pyspark.__version__}\n{pyspark.__file__}"
    settings = {
        "spark.app.name": "gobblin",
        "spark.master": spec.master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "false",
        # The runner evaluates no SQL in the JVM, so compiling generated Java would only make the start slower.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    if is_local:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": " ".join(fast_start_options(java, spark)),
            "spark.python.daemon.module": worker_daemon.__name__,
            **worker_daemon.ENVIRONMENT,
        }
    silence_py4j()
    conf = SparkConf(loadDefaults=False).setAll(list((settings | spec.conf).items()))
    try:
        _Jvm.gateway = _Jvm.gateway or _launch(settings | spec.conf, log_file)
        context = SparkContext(conf=conf, gateway=_Jvm.gateway)
        # Its thread would print a stack trace when the JVM dies; the run itself reports what failed by it.
        vars(context._accumulatorServer).update(handle_error=lambda *_: _LOG.info("the JVM closed its connection"))
        return SparkSession(context)
    except Exception as error:
        raise EnvironmentFaultError(
            problem=f"Spark did not start: {str(error).rstrip('.')}.",
            hint=f"Its log is {log_file}; `gobblin doctor` checks Java.",
        ) from error


class _Jvm:
    """The JVM of this process: pyspark keeps the first JVM for good, so a second one would never be used."""

    gateway: ClassVar[Any] = None
    environment: ClassVar[dict[str, str]] = {}
    """Variables with which it was started; empty until they are known."""


def _launch(settings: Mapping[str, str], log_file: Path | None) -> Any:
    """Start a JVM that prints to the log, in its own process session: Ctrl-C in a terminal reaches only the driver.

    Secrets reach it by a file that only this user can read: all users of a machine see command lines.
    """
    _Jvm.environment = lasting(os.environ)
    secret = {
        key: text
        for key, text in settings.items()
        if hidden(text) != text or is_secret_name(key) or _ACCESS_KEY.search(key)
    }
    conf = SparkConf(loadDefaults=False).setAll([one for one in settings.items() if one[0] not in secret])
    with (log_file or Path(os.devnull)).open("ab") as log, _given_by_file(secret), address_space.lifted():
        process = _WithoutForkHooks(stderr=log, stdout=log, start_new_session=True)
        return launch_gateway(conf, popen_kwargs=process)  # type: ignore[no-untyped-call]  # pyspark leaves it untyped


@contextmanager
def _given_by_file(settings: Mapping[str, str]) -> Iterator[None]:
    """Let `spark-submit` read settings from a file that only this user can read, and that is gone afterwards."""
    if not settings:
        yield
        return
    before = os.environ.get(_SUBMIT)
    is_nameless = Path("/proc/self/fd").is_dir()
    # A file without a name is gone after a kill too.
    with tempfile.TemporaryFile("w") if is_nameless else tempfile.NamedTemporaryFile("w") as file:
        # Java's properties have the escapes of JSON.
        file.writelines(f"{key}={json.dumps(text)[1:-1]}\n" for key, text in settings.items())
        file.flush()
        name = f"/proc/{os.getpid()}/fd/{file.fileno()}" if is_nameless else file.name
        arguments = f"--properties-file {shlex.quote(name)} --load-spark-defaults"
        os.environ[_SUBMIT] = f"{arguments} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SUBMIT]
            else:
                os.environ[_SUBMIT] = before


class _WithoutForkHooks(dict[str, Any]):
    """Settings of a process that never take a `preexec_fn`.

    pyspark sets one to ignore Ctrl-C, which a session of its own already does. With a `preexec_fn`, Python runs the
    fork hooks of libraries in the forked child, and some hooks wait for threads that do not exist there: fsspec's drops
    HDFS clients, and hangs.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "preexec_fn":
            super().__setitem__(key, value)


def silence_py4j() -> None:
    """Let py4j print no stack trace for each call to a JVM that died; the run reports what failed by it."""
    for name in ("py4j", "py4j.java_gateway", "py4j.clientserver"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    """Tell whether a record of the root logger is not py4j's, which writes some there."""
    return record.module != "java_gateway"
