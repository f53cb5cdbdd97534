from __future__ import annotations

import os
import pwd
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.engine.commit.step_runner import StepRunner
from gobblin_dagster.engine.spark.java import find_java
from gobblin_dagster.state import open_store
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, write_job


def fake_java(folder: Path, script: str) -> None:
    """Put a `java` of our own before all others."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "java").chmod(0o755)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path / "path"


@pytest.mark.parametrize(
    ("line", "version", "major"),
    [('openjdk version "17.0.15" 2025-04-15', "17.0.15", 17), ('java version "21" 2023-09-19', "21", 21)],
)
def test_find_java_reads_the_version(java: Path, line: str, version: str, major: int) -> None:
    fake_java(java, f"echo '{line}' >&2")
    found = find_java()
    assert (found.version, found.major, found.path) == (version, major, str(java / "java"))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "Java was not found on PATH."),
        ("exit 3", "does not start"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "is version 11.0.2; Spark needs 17 or newer"),
        ("echo 'java version \"1.8.0_292\"' >&2", "is version 1.8.0_292; Spark needs 17 or newer"),
        ("echo hello", "does not print its version"),
    ],
)
def test_find_java_says_what_is_wrong_and_how_to_mend_it(java: Path, script: str | None, words: str) -> None:
    if script is not None:
        fake_java(java, script)
    with pytest.raises(EnvironmentFaultError) as caught:
        find_java()
    assert words in str(caught.value)
    assert "Install Java 17 or newer" in str(caught.value)


def test_find_java_home_goes_first(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(java, "echo 'openjdk version \"17.0.1\"' >&2")
    fake_java(tmp_path / "home" / "bin", "echo 'openjdk version \"21.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java().major == 21
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(EnvironmentFaultError, match=r"\(from JAVA_HOME\) does not start"):
        find_java()


def test_doctor_names_each_check_and_leaves_no_trace(cli: Cli, project: Path, java: Path) -> None:
    fake_java(java, "echo 'openjdk version \"17.0.15\"' >&2")
    before = sorted(path.name for path in project.iterdir() if path.name != "path")
    called = cli("doctor", "--output", "json")
    document = called.json()
    assert (called.code, document["ok"]) == (0, True)
    names = [check["name"] for check in document["checks"]]
    assert names == [
        "Python", "Java", "PySpark", "Dagster", "project", "state store", "clock", "output numbers", "state numbers",
    ]  # fmt: skip
    after = sorted(path.name for path in project.iterdir() if path.name not in {"path", ".gobblin"})
    assert after == before


def test_doctor_missing_java_is_red_with_a_remedy_and_exits_1(cli: Cli, project: Path, java: Path) -> None:
    called = cli("doctor")
    assert called.code == 1
    assert "FAULT Java           Java was not found on PATH. Install Java 17" in called.out
    assert "ok    Python" in called.out


def test_doctor_faulty_project_and_unusable_output_and_store_are_red(cli: Cli, project: Path, java: Path) -> None:
    fake_java(java, "echo 'openjdk version \"17.0.15\"' >&2")
    (project / "gobblin.yaml").write_text("project: tests\nstate: mongodb://x\n")
    called = cli("doctor")
    assert called.code == 1
    assert "FAULT state store" in called.out
    (project / "gobblin.yaml").write_text("project: 1\n")
    called = cli("doctor")
    assert called.code == 1
    assert "FAULT project" in called.out


@pytest.mark.parametrize("url", ["sqlite:///.gobblin/state.db", "files:.gobblin/state"], ids=["sqlite", "files"])
def test_doctor_writes_to_the_state_store_and_leaves_nothing_in_it(
    cli: Cli, project: Path, java: Path, url: str
) -> None:
    fake_java(java, "echo 'openjdk version \"17.0.15\"' >&2")
    (project / "gobblin.yaml").write_text(f"project: tests\nstate: {url}\n")
    for _ in range(2):
        called = cli("doctor")
        assert called.code == 0
        assert re.search(r"ok    state store    .*: 0 job\(s\) known; it is writable\n", called.out)
    with closing(open_store(url, project)) as store:
        assert (store.list_jobs(), store.load_runs()) == ([], [])


@pytest.mark.parametrize("operation", ["INSERT", "DELETE"])
def test_doctor_state_store_that_can_only_be_read_is_red_with_a_remedy(
    cli: Cli, project: Path, java: Path, operation: str
) -> None:
    fake_java(java, "echo 'openjdk version \"17.0.15\"' >&2")
    assert cli("state", "list").code == 0
    with closing(sqlite3.connect(project / ".gobblin" / "state.db")) as file:
        # As a missing grant does; the tests' user may be root, whom a read-only file does not stop.
        refuse = "SELECT RAISE(FAIL, 'permission denied')"
        file.execute(f"CREATE TRIGGER no BEFORE {operation} ON gobblin_runs BEGIN {refuse}; END")
        if operation == "DELETE":
            file.execute("INSERT INTO gobblin_runs VALUES ('r', '.gobblin-doctor', '2026-11-21 00:00:00.000000', '')")
        file.commit()
    called = cli("doctor")
    assert called.code == 1
    assert re.search(
        r"FAULT state store    The state store sqlite:.*state\.db can be read, but not written: permission denied.* "
        "Let this user write to it: ",
        called.out,
    )


def test_doctor_says_of_a_store_that_was_set_back_what_the_plan_says(
    cli: Cli, project: Path, java: Path, inline: list[InlineRunner]
) -> None:
    fake_java(java, "echo 'openjdk version \"17.0.15\"' >&2")
    cli("run", "numbers")
    shutil.copytree(project / ".gobblin", project / "backup")
    write_job(project, {"a": {"rows": 30}, "b/c": {"rows": 3}, "new": {"rows": 1}})
    cli("run", "numbers")
    manifests = project / "lake/_gobblin/manifests/numbers"
    (manifests / "README.txt").write_text("none of ours")
    (manifests / "%0A").mkdir()
    (manifests / "empty").mkdir()
    assert cli("doctor").code == 0
    shutil.rmtree(project / ".gobblin")
    (project / "backup").rename(project / ".gobblin")
    write_job(project, {"a": {"rows": 40}, "b/c": {"rows": 3}, "new": {"rows": 2}})
    planned = {one["dataset"]: one["problem"] for one in cli("plan", "-o", "json").json()["jobs"][0]["datasets"]}
    called = cli("doctor", "-o", "json")
    (check,) = (one for one in called.json()["checks"] if not one["ok"])
    assert (called.code, check["name"]) == (1, "state numbers")
    assert planned["a"] in check["detail"]
    assert "restored from an older copy" in check["detail"]
    assert "Datasets with such a problem: 2." in check["detail"]


def test_doctor_names_commits_that_wait_whose_job_is_in_no_file(
    cli: Cli, project: Path, java: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that all was well."""
    fake_java(java, "echo 'openjdk version \"17.0.15\"' >&2")

    def frozen(*_: object, **__: object) -> None:
        raise OSError("frozen")

    monkeypatch.setattr(StepRunner, "roll_forward", frozen)
    cli("run", "numbers")
    assert cli("doctor").code == 0
    (waiting, *_) = cli("commit", "list", "-o", "json").json()["sequences"]
    for file in (project / "jobs").iterdir():
        file.unlink()
    called = cli("doctor", "-o", "json")
    (check,) = (one for one in called.json()["checks"] if one["name"] == "state store")
    assert called.code == 0, "another project that shares the store may have the job"
    assert f"{waiting['sequence']} of dataset {waiting['dataset']!r} of job 'numbers' (prepared)" in check["detail"]


def test_doctor_outside_of_a_project_looks_at_the_machine_only(
    cli: Cli, java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(java, "echo 'openjdk version \"17.0.15\"' >&2")
    monkeypatch.chdir(tmp_path)
    assert [check["name"] for check in cli("doctor", "-o", "json").json()["checks"]] == [
        "Python", "Java", "PySpark", "Dagster",
    ]  # fmt: skip
    assert cli("-C", tmp_path, "doctor").code == 1


def test_user_id_without_a_name_is_told_before_spark_fails(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_name(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", no_name)
    with pytest.raises(EnvironmentFaultError, match=f"User id {os.getuid()} has no name .*start: when_needed"):
        find_java()
