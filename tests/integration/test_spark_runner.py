"""Jobs on a real local Spark: one session for all tests, each test its own folder."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.serialization import to_json
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.processes.runner import ProcessRunner
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.spark import runner as spark_module
from gobblin_dagster.engine.spark.lazy import LazySparkRunner
from gobblin_dagster.engine.spark.runner import SparkRunner, _SparkJob, silence_py4j
from gobblin_dagster.engine.task.context import TaskInput
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import SparkSpec
from tests.unit.engine.jobs import by_urn, job_spec, project, published

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRunner]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    runner = SparkRunner.start(project(log.parent).spec.spark, log)
    yield runner
    runner.close()


def _run(root: Path, job: JobSpec, runner: SparkRunner, **more: Any) -> RunResult:
    return run_job(project(root, job), job, runner=runner, **more)


def test_spark_many_datasets_in_one_job_are_published_whole(tmp_path: Path, runner: SparkRunner) -> None:
    job = job_spec({f"d{i:03}": {"rows": i} for i in range(1, 60)})
    result = _run(tmp_path, job, runner)
    assert result.status is RunStatus.SUCCEEDED
    assert all(published(tmp_path, job, f"d{i:03}") == list(range(i)) for i in (1, 30, 59))


def test_variable_that_is_set_between_two_runs_is_seen_by_the_workers_of_the_second(
    tmp_path: Path, runner: SparkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = [
        {"type": "add", "columns": {"word": "x"}},
        {"type": "hash", "columns": ["word"], "key_env": "PSEUDONYM_KEY"},
    ]
    hashed = []
    for number in range(2):
        monkeypatch.setenv("PSEUDONYM_KEY", f"a-key-of-sixteen-bytes-{number}")
        job = job_spec({"d": {"rows": 1}}, job=f"j{number}", converters=keyed)
        assert _run(tmp_path / str(number), job, runner).status is RunStatus.SUCCEEDED
        file = next((tmp_path / str(number)).rglob("d/*.parquet"))
        hashed.append(pq.read_table(file).column("word").to_pylist())
    assert hashed[0] != hashed[1]


def test_pages_of_spark_are_linked_where_they_are_on(runner: SparkRunner) -> None:
    assert runner.pages() == LazySparkRunner(SparkSpec()).pages() == {}
    running = runner.session.sparkContext._jsc  # it is asked whether it still runs
    address = {"spark.yarn.historyServer.address": "history:18080"}
    shown: Any = SimpleNamespace(
        _sc=SimpleNamespace(uiWebUrl="http://driver:4040", applicationId="app-1", _jsc=running)
    )
    assert SparkRunner(shown, conf=address).pages() == {"pages": "http://driver:4040"}
    kept = SparkRunner(shown, conf=address | {"spark.eventLog.enabled": "true"}).pages()
    assert kept["history"] == "http://history:18080/history/app-1"
    remote: Any = SimpleNamespace()
    assert SparkRunner(remote, conf=address).pages() == {}, "a session of Spark Connect"


def test_spark_workers_find_spark_where_it_is_installed_and_nothing_is_read_from_archives(runner: SparkRunner) -> None:
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gobblin_dagster.engine.task.multi_work_unit as ready

        for _ in batches:
            found = [str(sys.modules["pyspark"].__file__), str(ready.__file__), *sys.path_importer_cache]
            yield pa.RecordBatch.from_arrays([pa.array(found)], names=["found"])

    rows = runner.session.range(1).mapInArrow(look, "found string").collect()
    spark, _, *searched = [row[0] for row in rows]
    assert spark == pyspark.__file__
    assert not [path for path in searched if ".zip" in path and "pyspark" in path]


def test_spark_failed_unit_leaves_the_others_whole(tmp_path: Path, runner: SparkRunner) -> None:
    job = job_spec({"bad": {"rows": 500, "fail_at": 100}, "good": {"rows": 500}})
    result = _run(tmp_path, job, runner)
    assert result.exit_code == 4
    assert published(tmp_path, job, "good") == list(range(500))


def test_spark_unit_that_kills_its_worker_ends_as_its_own_failure(tmp_path: Path, runner: SparkRunner) -> None:
    datasets = {f"d{i}": {"rows": 50} for i in range(12)}
    job = job_spec({**datasets, "poison": {"rows": 50, "kill_at": 25}})
    result = _run(tmp_path, job, runner)
    failed = result.with_outcome(DatasetOutcome.FAILED)
    assert [dataset.dataset_urn for dataset in failed] == ["poison"]
    assert failed[0].failures[0].code == "worker-died"
    assert "exit code 9" in failed[0].failures[0].message
    assert failed[0].failures[0].message.endswith("It said: told to die")
    assert all(published(tmp_path, job, urn) == list(range(50)) for urn in datasets)


def test_spark_small_units_share_files_and_killers_among_them_fail_alone(tmp_path: Path, runner: SparkRunner) -> None:
    job = job_spec(
        {"a": {"rows": 200, "unit_rows": 10}, "poison": {"rows": 200, "unit_rows": 10, "kill_at": 155}},
        commit={"policy": "successful"},
        execution={"packs": 1},
    )
    result = by_urn(_run(tmp_path, job, runner))
    assert published(tmp_path, job, "a") == list(range(200))
    assert published(tmp_path, job, "poison") == [n for n in range(200) if not 150 <= n < 160]
    assert [failure.code for failure in result["poison"].failures] == ["worker-died"]
    assert (result["a"].files, result["poison"].files) == (2, 2 * 19)


def test_spark_publishes_the_part_before_a_fault_and_what_limits_allow(tmp_path: Path, runner: SparkRunner) -> None:
    datasets: dict[str, dict[str, Any]] = {"broken": {"rows": 1000, "fail_at": 450}, "long": {"rows": 1000}}
    job = job_spec(datasets, commit={"policy": "partial"}, execution={"limit": {"rows": 600}})
    assert _run(tmp_path, job, runner).exit_code == 4
    assert published(tmp_path, job, "broken") == list(range(400))
    assert published(tmp_path, job, "long") == list(range(600))
    mended = job_spec({urn: {"rows": 1000} for urn in datasets}, commit={"policy": "partial"})
    assert _run(tmp_path, mended, runner).exit_code == 0
    assert [published(tmp_path, mended, urn, "masked") for urn in datasets] == [list(range(1000))] * 2


def test_processes_give_the_same_results_as_spark(tmp_path: Path, runner: SparkRunner) -> None:
    """Units that succeed, share files, fail, are cut by a limit, are quarantined and fail a policy; two branches."""
    job = job_spec(
        {
            "whole": {"rows": 300},
            "shared": {"rows": 40, "unit_rows": 10},
            "broken": {"rows": 500, "fail_at": 250},
            "cut": {"rows": 900},
        },
        commit={"policy": "partial"},
        execution={"limit": {"rows": 600}, "packs": 3},
        row_policies=[{"name": "value", "type": "not_null", "columns": ["value"]}],
    )
    with closing(ProcessRunner(2)) as processes:
        found = [_results(tmp_path / type(one).__name__, job, one) for one in (runner, processes)]
    assert found[0] == found[1]
    assert {state["state"] for state in found[0]} == {"successful", "failed"}
    assert sum(state["rows_quarantined"] for state in found[0]) > 0


def _results(root: Path, job: JobSpec, runner: TaskRunner) -> list[dict[str, Any]]:
    """Return the TaskStates of a plan without what is another one each time: ids of attempts, and seconds."""
    with project(root, job).use_store(None) as store:
        opened = JobContext.of(project(root, job), job, store, run_id="r1")
        plan = opened.plan()
        tasks = {
            unit.id: TaskInput(unit, dataset.dataset_urn, dataset.previous_schemas)
            for dataset in plan.datasets
            for unit in dataset.work_units
        }
        packs = [[tasks[unit_id] for unit_id in pack] for pack in plan.packs]
        states = runner.run(opened.context, packs, lambda _: None, threading.Event())
    text = "".join(to_json(state) + "\n" for state in states).replace(str(root), "")
    for state in states:
        text = text.replace(state.attempt, "ATTEMPT")
    documents = [json.loads(line) for line in text.splitlines()]
    for document in documents:
        for name in ("seconds", "extract_s", "convert_s", "queues"):
            document.pop(name, None)
    return documents


def test_spark_large_plan_travels_as_pack_files(
    tmp_path: Path, runner: SparkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_module, "MAX_CLOSURE_BYTES", 0)
    job = job_spec({"a": {"rows": 40, "unit_rows": 10}})
    assert _run(tmp_path, job, runner).exit_code == 0
    assert published(tmp_path, job, "a") == list(range(40))


def test_spark_results_are_observed_while_the_job_works(tmp_path: Path, runner: SparkRunner) -> None:
    seen: list[tuple[str, int, int]] = []

    class Watch(RunListener):
        def task_done(self, state: TaskState, done: int, total: int) -> None:
            seen.append((state.dataset_urn, done, total))

    _run(tmp_path, job_spec({"a": {"rows": 4}, "b": {"rows": 4}}), runner, listeners=[Watch()])
    assert [(done, total) for _, done, total in seen] == [(1, 2), (2, 2)]


def test_spark_stop_lets_running_units_end_and_commits_them(tmp_path: Path, runner: SparkRunner) -> None:
    stop = threading.Event()
    stop.set()
    job = job_spec({f"d{i}": {"rows": 5} for i in range(5)})
    result = _run(tmp_path, job, runner, stop=stop)
    assert result.exit_code == 130
    for dataset in result.datasets:
        committed = dataset.outcome is DatasetOutcome.COMMITTED
        assert published(tmp_path, job, dataset.dataset_urn) == (list(range(5)) if committed else [])
    assert _run(tmp_path, job, runner).exit_code == 0
    assert by_urn(_run(tmp_path, job, runner))["d4"].outcome is DatasetOutcome.IDLE


TWICE = """
import os
from pathlib import Path
from gobblin_dagster.engine.new_data import _is_alive
from gobblin_dagster.engine.spark.lazy import LazySparkRunner
from gobblin_dagster.spec.project import SparkSpec

os.register_at_fork(after_in_child=lambda: os.write(2, b"hooked"))
for _ in range(2):
    runner = LazySparkRunner(SparkSpec())
    print(len(runner.started().session.range(3).collect()), repr(runner.unfit()), _is_alive(runner))
    runner.started().session.sparkContext._jsc.sc().stop()  # as a cluster does that gives an application up
    print(repr(runner.unfit()), _is_alive(runner))
    runner.close()
texts = [file.read_text() for file in Path("/proc").glob("[0-9]*/status")]
print(sum("Name:\\tjava" in text and f"PPid:\\t{os.getpid()}\\n" in text for text in texts))
"""


def test_second_start_in_a_process_uses_the_jvm_that_is_there_and_a_stopped_spark_is_unfit() -> None:
    """It starts without what libraries hook to forks, too: fsspec drops clients of HDFS in forked children, which
    waited for ever for threads that only the parent has."""
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["3 '' True", "'Spark has ended' False"] * 2 + ["1"]
    assert "hooked" not in done.stderr


DYING = """
import os, signal, sys, time
import gobblin_dagster.engine.spark.runner as spark
from gobblin_dagster.cli.program import run_command
from gobblin_dagster.cli.render.run import RunDisplay
from gobblin_dagster.engine.spark.lazy import LazySparkRunner

owner, name = {"at the end": (LazySparkRunner, "close"), "after the last task": (RunDisplay, "task_done")}[sys.argv[1]]
usual = getattr(owner, name)

def die_first(self, *args):
    process = spark._Jvm.gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    usual(self, *args)

setattr(owner, name, die_first)
sys.exit(run_command(["run", "--output", "json", "--progress", "none"]))
"""


def test_stack_traces_that_py4j_writes_to_the_root_logger_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    silence_py4j()
    own, theirs = (
        logging.getLogger().makeRecord("root", logging.ERROR, path, 1, "Exception while sending command.", (), None)
        for path in ("mine.py", "py4j/java_gateway.py")
    )
    for record in (own, theirs):
        logging.getLogger().handle(record)
    assert caplog.records == [own]


@pytest.mark.parametrize("moment", ["after the last task", "at the end"])
def test_jvm_that_dies_after_the_last_task_changes_neither_exit_code_nor_document(tmp_path: Path, moment: str) -> None:
    (tmp_path / "gobblin.yaml").write_text("project: tests\nspark: {master: 'local[1,4]'}\n")
    (tmp_path / "jobs").mkdir()
    spec = job_spec({"a": {"rows": 3}}, output={"path": "lake"})
    (tmp_path / "jobs" / "j.yaml").write_text(spec.model_dump_json())
    done = subprocess.run(
        [sys.executable, "-c", DYING, moment], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["exit_code"], [job["status"] for job in document["jobs"]]) == (0, ["succeeded"])
    assert "Traceback" not in done.stderr
    assert "error[" not in done.stderr


def test_next_command_reads_with_a_session_of_its_own(runner: SparkRunner) -> None:
    first = runner.session.newSession()
    kept = SparkRunner(first, 2, owns_session=True)  # never closed: its Spark belongs to all tests
    kept.renew_session()
    assert kept.session is first
    kept.open_session().range(1).createOrReplaceTempView("of_an_earlier_command")
    kept.renew_session()
    again = kept.open_session()
    assert again is not first
    assert not again.catalog.tableExists("of_an_earlier_command")
    assert again.conf.get("spark.sql.session.timeZone") == "UTC"


def test_rows_are_left_out_and_changed_only_if_the_project_says_so(runner: SparkRunner) -> None:
    """Whole clusters may be set up so: the watermark moved past files, 30 February was 1 March, an empty text null."""
    settings = {
        "spark.sql.files.ignoreCorruptFiles": ("true", "false"),
        "spark.sql.files.ignoreInvalidPartitionPaths": ("true", "false"),
        "spark.sql.sources.validatePartitionColumns": ("false", "true"),
        "spark.sql.legacy.json.allowEmptyString.enabled": ("true", "false"),
        "spark.sql.legacy.timeParserPolicy": ("LEGACY", "CORRECTED"),
    }
    of_cluster, of_spark = ({name: pair[place] for name, pair in settings.items()} for place in (0, 1))
    for conf, expected in (({}, of_spark), (of_cluster, of_cluster)):
        session = runner.session.newSession()
        for name, value in of_cluster.items():
            session.conf.set(name, value)
        made = SparkRunner(session, 2, owns_session=True, conf=conf)  # never closed: its Spark belongs to all tests
        opened = made.open_session()
        assert {name: opened.conf.get(name) for name in settings} == expected


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), RuntimeError("refused.")])
def test_reason_why_spark_lost_work_is_a_sentence_of_its_own(error: Exception) -> None:
    job = _SparkJob(cast("SparkSession", None), "{}", [], inline=False)
    job._error = error
    assert "refused. Run again" in job._lost().message
