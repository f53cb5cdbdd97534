"""SparkRunner, with a session whose JVM has ended, and with a `spark-submit` that starts none."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from gobblin_dagster.core.errors import EnvironmentFaultError, SparkLostError
from gobblin_dagster.core.memory import address_space
from gobblin_dagster.core.secrets import remember
from gobblin_dagster.engine.spark import runner as module
from gobblin_dagster.engine.spark.runner import SparkRunner, _Jvm, _SparkJob
from gobblin_dagster.spec.project import SparkSpec


class Py4JNetworkError(Exception):
    """As py4j's, which is known by its name."""


def test_session_whose_jvm_has_ended_is_told_as_that_and_not_as_a_refused_connection() -> None:
    def refuse(*_: object) -> NoReturn:
        try:
            raise Py4JNetworkError("Answer from Java side is empty")
        except Py4JNetworkError:
            raise ConnectionRefusedError(111, "Connection refused")  # noqa: B904 - as py4j raises it

    session: Any = SimpleNamespace(conf=SimpleNamespace(set=refuse))
    with pytest.raises(SparkLostError, match="Spark has ended: its JVM crashed or was killed"):
        SparkRunner(session, owns_session=True).open_session()


def test_session_that_was_closed_is_collected_without_the_lock_of_the_threads_that_all_sessions_share() -> None:
    pytest.importorskip("grpc", reason="Spark Connect's packages are an extra")
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator as Answers
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session: Any = RemoteSession("sc://127.0.0.1:1")  # nobody is asked before the first query
    session.client.release_session = list  # as if the server had answered
    runner = SparkRunner(session, owns_session=True)
    runner.close()
    pool = Answers._get_or_create_release_thread_pool()
    del runner, session
    gc.collect()
    assert Answers._release_thread_pool_instance is pool
    Answers.shutdown()


_AWAY = """
import atexit
from unittest.mock import patch
from gobblin_dagster.engine.spark import runner as module
from gobblin_dagster.spec.project import SparkSpec
module.STOP_S = 3
runner = module.SparkRunner.start(SparkSpec(remote="sc://127.0.0.1:1"))
client = runner.session._client
(policy,) = client.get_retry_policies()
waited = policy.max_retries * policy.max_backoff // 1000
with patch.object(atexit, "unregister", wraps=atexit.unregister) as unregistered:
    runner.close()
print(waited, unregistered.call_args.args == (client._cleanup_ml_cache,), policy.max_retries)
print(*(dict(client._builder._channel_options)[name] for name, _ in module.KEEPALIVE))
"""


def test_server_that_is_away_is_waited_for_as_long_as_we_say_and_not_at_the_end_of_the_process() -> None:
    pytest.importorskip("grpc", reason="Spark Connect's packages are an extra")
    # Of its own, as a process with a classic session connects to no server.
    done = subprocess.run([sys.executable, "-c", _AWAY], capture_output=True, text=True, timeout=60, check=True)
    waited, is_unregistered, tries_left, *keepalive = done.stdout.split()
    assert 60 <= int(waited) <= 100
    assert is_unregistered == "True"
    assert tries_left == "0", "what is tried still in another thread ends too"
    assert keepalive == ["310000", "30000", "0"], "a server that is frozen is noticed"
    assert "Spark does not answer" not in done.stderr


def _frozen(monkeypatch: pytest.MonkeyPatch, **session: object) -> tuple[SparkRunner, list[str], threading.Event]:
    """Return a runner whose JVM answers no call until it is killed, the list of its kills, and what ends the calls."""
    ended, kills = threading.Event(), list[str]()

    def kill() -> None:
        kills.append("jvm")
        ended.set()

    monkeypatch.setattr(module, "STOP_S", 0.05, raising=False)
    monkeypatch.setattr(_Jvm, "gateway", SimpleNamespace(proc=SimpleNamespace(kill=kill)))
    frozen: Any = SimpleNamespace(stop=lambda: ended.wait(10), **session)
    return SparkRunner(frozen, owns_session=True), kills, ended


def test_jvm_that_is_frozen_when_the_run_ends_is_killed_and_a_server_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runner, kills, _ = _frozen(monkeypatch, _sc=object())
    runner.close()
    assert kills == ["jvm"]
    assert "Spark does not answer" in caplog.text
    remote, kills, ended = _frozen(monkeypatch)
    remote.close()
    assert not kills
    assert not ended.is_set()  # nobody waited for it
    ended.set()


def test_interrupt_while_a_frozen_jvm_is_waited_for_kills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, kills, _ = _frozen(monkeypatch, _sc=object())
    monkeypatch.setattr(module, "STOP_S", 20)
    interrupt = threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        runner.close()
    assert kills == ["jvm"]


def test_log_of_a_server_is_named_where_it_is_without_its_token() -> None:
    pytest.importorskip("grpc", reason="Spark Connect's packages are an extra")
    from pyspark.sql.connect.client import DefaultChannelBuilder

    address = DefaultChannelBuilder("sc://spark.example:15002/;token=geheim")
    session: Any = SimpleNamespace(_client=SimpleNamespace(_builder=address))
    classic: Any = SimpleNamespace()
    for one, log in (
        (session, "the log of the Spark Connect server spark.example:15002"),
        (classic, "`.gobblin/spark.log` of the project"),
    ):
        job = _SparkJob(one, "{}", [], inline=True)
        assert job._lost().message == f"Spark lost this work unit: no result came back. Run again; {log} says more."


@pytest.mark.parametrize("is_killed", [True, False])
def test_work_that_is_lost_with_the_jvm_is_told_as_that_and_not_by_the_call_that_failed(is_killed: bool) -> None:
    def fail(*_: object) -> NoReturn:
        cause = Py4JNetworkError("Answer from Java side is empty") if is_killed else None
        raise RuntimeError("An error occurred while calling o119.collectToPython") from cause

    job = _SparkJob(SimpleNamespace(range=fail), "{}", [["{}"]], inline=True)  # type: ignore[arg-type]  # a stand-in
    job.start()
    assert not job.is_running(5)
    told = job._lost().message
    assert told.startswith(
        "Spark lost this work unit: its JVM crashed or was killed. Run again"
        if is_killed
        else "Spark lost this work unit: An error occurred while calling o119.collectToPython. Run again"
    )


def test_package_that_workers_lack_is_told_in_place_of_the_call_that_failed() -> None:
    def fail(*_: object) -> NoReturn:
        raise RuntimeError(
            "An error occurred while calling o119.collectToPython.\nError from python worker:\n  /bin/python: Error "
            "while finding module specification for 'x' (ModuleNotFoundError: No module named 'gobblin_dagster.x')\n"
        )

    job = _SparkJob(SimpleNamespace(range=fail), "{}", [["{}"]], inline=True)  # type: ignore[arg-type]  # a stand-in
    job.start()
    assert not job.is_running(5)
    told = job._lost()
    assert (told.code, told.message.partition(" Install ")[0]) == (
        "environment",
        "Spark's Python workers lack the package gobblin_dagster.",
    )


SUBMIT = """#!/bin/sh
echo "$@" > "$SPARK_HOME/line"
while [ "$1" != --properties-file ]; do shift; done
stat -L -c %a "$2" > "$SPARK_HOME/rights"
cp "$2" "$SPARK_HOME/properties"
exit 1
"""


def test_secrets_of_spark_s_settings_stand_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin" / "spark-submit"
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # which a start sets
        monkeypatch.setenv(name, sys.executable)
    monkeypatch.setattr("gobblin_dagster.engine.spark.runner.existing_session", lambda: None)  # another test's
    monkeypatch.setattr(_Jvm, "gateway", None)
    monkeypatch.setattr(_Jvm, "environment", {})
    remember({'kanarie "\\é': "${CANARY}"})
    conf = {
        "spark.hadoop.fs.s3a.access.key": "literally too",
        "spark.hadoop.fs.s3a.endpoint": 'kanarie "\\é',
        "spark.hadoop.own.secret.key": "literally",
    }
    with pytest.raises(EnvironmentFaultError, match=r"Spark did not start: [^.]*number\. Its log"):
        SparkRunner.start(SparkSpec(conf=conf | {"spark.ui.port": "1"}), None)
    line = (tmp_path / "line").read_text()
    assert "kanarie" not in line
    assert "literally" not in line
    assert "--conf spark.ui.port=1 " in line
    assert line.endswith(" --load-spark-defaults --verbose pyspark-shell\n")
    assert (tmp_path / "properties").read_text().splitlines() == [
        "spark.hadoop.fs.s3a.access.key=literally too",
        r"spark.hadoop.fs.s3a.endpoint=kanarie \"\\\u00e9",
        "spark.hadoop.own.secret.key=literally",
    ]
    assert (tmp_path / "rights").read_text() == "600\n"
    assert not Path(line.split("--properties-file ")[1].split()[0]).exists()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"


def test_jvm_does_not_get_the_limit_of_an_expression_that_runs_as_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    monkeypatch.setattr(module, "launch_gateway", lambda *_, **__: resource.getrlimit(resource.RLIMIT_AS))
    monkeypatch.setattr(_Jvm, "environment", {})
    address_space.lower(1 << 45, "a test")
    try:
        assert module._launch({}, None) == before
        assert resource.getrlimit(resource.RLIMIT_AS) != before
    finally:
        address_space.restore()
