"""What the launcher relies on in Dagster, whose names are not exported: a version that changes it fails here."""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import FileCodePointer, ModuleCodePointer
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin

from gobblin_dagster.launcher import _internal


def origin(pointer: FileCodePointer | ModuleCodePointer) -> JobPythonOrigin:
    python = RepositoryPythonOrigin(sys.executable, pointer, None, None, None)
    return JobPythonOrigin("one_job", python)


def test_module_of_definitions_is_known_and_a_file_has_none() -> None:
    assert _internal.module_of(origin(ModuleCodePointer("shop.definitions", "defs"))) == "shop.definitions"
    assert _internal.module_of(origin(FileCodePointer("definitions.py", "defs"))) is None


ONE_JOB = """
import dagster as dg

@dg.op
def say(context):
    context.log.info({text!r})

@dg.job(executor_def=dg.in_process_executor)
def one_job():
    say()

defs = dg.Definitions(jobs=[one_job])
"""


def test_each_run_is_executed_from_its_order_with_the_definitions_of_now(tmp_path: Path) -> None:
    """Dagster keeps the newest job of a process, so a second run of it would not see what has changed since."""
    file = tmp_path / "one_job_of_test.py"
    code = origin(FileCodePointer(str(file), "defs", str(tmp_path)))
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        for text in ("hello", "bye"):
            file.write_text(ONE_JOB.format(text=text))
            sys.modules.pop(file.stem, None)
            run = instance.create_run_for_job(nothing, job_code_origin=code)
            order = _internal.order_of(run, code, instance)
            assert run.run_id in order
            _internal.execute(order)
            assert text in [entry.user_message for entry in instance.all_logs(run.run_id)]
            assert status(instance, run) == "SUCCESS"
            _internal.report_unended(order, "it has ended")
            assert status(instance, run) == "SUCCESS"
        lost = instance.create_run_for_job(nothing, job_code_origin=code)
        _internal.report_unended(_internal.order_of(lost, code, instance), "it was lost")
        assert status(instance, lost) == "FAILURE"


@dg.job(name="one_job", executor_def=dg.in_process_executor)
def nothing() -> None:
    """A job of the same steps."""
    dg.op(name="say")(lambda: None)()


def status(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status.value


def test_variables_of_a_file_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("SHOP_PASSWORD=geheim\n")
    with dg.DagsterInstance.ephemeral() as instance:
        assert _internal.injected(instance, "shop") == {"SHOP_PASSWORD": "geheim"}
