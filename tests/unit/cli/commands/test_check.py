from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli, write_job


def test_check_good_project_is_ok(cli: Cli, project: Path) -> None:
    called = cli("check")
    assert (called.code, called.out) == (0, "ok    jobs/numbers.yaml: job numbers\n")


def test_check_shows_the_faults_of_all_files(cli: Cli, project: Path) -> None:
    (project / "jobs" / "one.yaml").write_text("job: one\n")
    (project / "jobs" / "two.yaml").write_text("job: two\nsource: {type: files, glob: x}\n")
    called = cli("check")
    assert called.code == 2
    assert "ok    jobs/numbers.yaml: job numbers" in called.out
    assert "FAULT jobs/one.yaml has 3 faults:" in called.out
    assert "jobs/two.yaml:2: source.glob: unknown key" in called.out


def test_check_json_has_file_line_and_place_of_each_fault(cli: Cli, project: Path) -> None:
    write_job(project, {"a": {"rows": 1}}, job="bad", comit={})
    called = cli("check", "--output", "json")
    document = called.json()
    assert called.code == 2
    assert document["valid"] is False
    assert document["files"][0] == {"file": "jobs/numbers.yaml", "job": "numbers", "faults": [], "notes": []}
    (fault,) = document["files"][1]["faults"]
    assert fault["path"] == "comit"
    assert fault["problem"] == "unknown key; did you mean 'commit'?"
    lines = (project / "jobs" / "bad.yaml").read_text().splitlines()
    assert "comit" in lines[fault["line"] - 1]


def test_check_faulty_project_file_is_shown(cli: Cli, project: Path) -> None:
    (project / "gobblin.yaml").write_text("project: x\nstat: y\n")
    called = cli("check")
    assert called.code == 2
    assert "gobblin.yaml:2: stat: unknown key; did you mean 'state'?" in called.out


def test_check_missing_jobs_folder_and_empty_jobs_folder(cli: Cli, project: Path) -> None:
    (project / "jobs" / "numbers.yaml").unlink()
    assert "There is no job file" in cli("check").err
    (project / "jobs").rmdir()
    called = cli("check")
    assert called.code == 2
    assert "Project 'tests' has no jobs folder jobs" in called.err


def test_schema_is_one_json_document_with_the_built_in_constructs(cli: Cli) -> None:
    document = cli("schema").json()
    assert document["$schema"].endswith("2020-12/schema")
    types = {option["title"] for option in document["$defs"]["writer"]["oneOf"]}
    assert {"parquet", "csv"} <= types


def test_check_names_a_source_that_limits_cannot_end(cli: Cli, project: Path) -> None:
    write_job(project, {"a": {"rows": 1}}, job="bounded", execution={"limit": {"rows": 5}})
    limit = "execution: {limit: {rows: 5}}\n"
    source = "source: {type: spark, format: csv, path: in}\nextract: {namespace: n, table: t}\noutput: {path: lake}\n"
    (project / "jobs" / "limited.yaml").write_text(f"job: limited\n{source}{limit}")
    called = cli("check")
    assert called.code == 2
    assert "ok    jobs/bounded.yaml: job bounded" in called.out
    assert "FAULT jobs/limited.yaml has 1 fault:" in called.out
    assert "source 'spark' cannot report its position" in called.out


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"type": "spark", "format": "csv", "path": "in"}, "without a `watermark` everything is read in each run"),
        (
            {"type": "rest", "url": "http://127.0.0.1:9", "datasets": {"a": "/a"}, "columns": {"id": "int64"}},
            "without a `cursor` everything is read in each run",
        ),
    ],
    ids=["spark", "rest"],
)
def test_check_names_a_source_that_would_publish_everything_again(
    cli: Cli, project: Path, source: dict[str, Any], said: str
) -> None:
    write_job(project, {}, source=source)
    called = cli("check")
    assert (called.code, said in called.out) == (2, True)
    extract = {"namespace": "n", "table": "t", "type": "snapshot_only"}
    write_job(project, {}, source=source, extract=extract)
    assert cli("check").code == 0


def test_check_names_a_full_extract_that_its_source_cannot_make(cli: Cli, project: Path) -> None:
    files = {"type": "files", "path": "in/*.csv", "format": {"type": "csv"}, "max_files_per_run": 3}
    write_job(project, {}, source=files, extract={"namespace": "n", "table": "t", "type": "snapshot_only"})
    called = cli("check")
    assert called.code == 2
    assert "source 'files' as declared cannot read everything in each run" in called.out


def test_check_names_sql_that_cannot_be_parsed_with_its_line(cli: Cli, project: Path) -> None:
    write_job(
        project,
        {"a": {"rows": 1}},
        converters=[{"type": "sql", "select": "* EXCLUDE (tailnum"}],
        row_policies=[{"type": "sql", "name": "paid", "rule": "amount >"}],
    )
    called = cli("check", "-o", "json")
    faults = {fault["path"]: fault for file in called.json()["files"] for fault in file["faults"]}
    assert called.code == 2
    assert set(faults) == {"converters[0].select", "row_policies[0].rule"}
    assert all("is no SQL" in fault["problem"] and fault["line"] for fault in faults.values())


def test_check_names_packages_that_are_not_installed(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("confluent_kafka", "boto3", "cryptography"):
        monkeypatch.setitem(sys.modules, module, None)
    write_job(
        project,
        {},
        source={"type": "kafka", "brokers": "x:1", "topics": ["t"]},
        output={"path": "s3://bucket/lake"},
        converters=[{"type": "encrypt", "columns": ["x"], "key_env": "KEY"}],
    )
    called = cli("check")
    assert called.code == 1
    assert "source: The package confluent-kafka is not installed; it is needed for Kafka." in called.out
    assert "output.path: The package boto3 is not installed" in called.out
    assert "pip install 'gobblin-dagster[s3]'" in called.out
    assert "converters[0]: The package cryptography is not installed" in called.out


def test_check_goes_on_with_other_jobs_where_a_source_lacks_its_package(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    files = {"type": "files", "path": "in/{dataset}/*.avro", "format": "avro", "new_files": "name"}
    write_job(project, {}, source=files)
    (project / "jobs" / "wrong.yaml").write_text("job: wrong\n")
    called = cli("check")
    assert "source.format: The package fastavro is not installed" in called.out
    assert (called.code, "wrong.yaml" in called.out, called.err) == (2, True, "")
    (project / "jobs" / "wrong.yaml").unlink()
    assert cli("check").code == 1
    called = cli("plan")
    assert (called.code, "source.format: The package fastavro is not installed" in called.err) == (1, True)


@pytest.mark.parametrize(
    ("module", "state", "extra"),
    [
        ("boto3", "files:s3://bucket/state", "s3"),
        ("hdfs_native", "files:hdfs://node:8020/state", "hdfs"),
        ("psycopg2", "postgresql://user@host/db", "postgres"),
    ],
    ids=["s3", "hdfs", "postgres"],
)
def test_check_names_the_missing_package_of_the_state_store(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, module: str, state: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    (project / "gobblin.yaml").write_text(f"project: tests\nstate: {state}\n")
    called = cli("check")
    assert (called.code, f"pip install 'gobblin-dagster[{extra}]'" in called.out) == (1, True)
    assert "gobblin.yaml: state: " in called.out


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ("mysql://host/db", "begins with 'mysql'"),
        ("hunter22x", "URL has no scheme. Use"),
        ("files:sftp://host/state", "scheme 'sftp' is not supported"),
        ("files:s3:///state", "names no bucket"),
        ("sqlite://", "names no file"),
    ],
    ids=["mysql", "password", "sftp", "s3", "sqlite"],
)
def test_check_names_a_state_store_that_cannot_be(cli: Cli, project: Path, state: str, problem: str) -> None:
    (project / "gobblin.yaml").write_text(f"project: tests\nstate: {state}\n")
    called = cli("check")
    assert (called.code, problem in called.out) == (2, True)


def test_jobs_that_read_what_each_other_publish_are_noted(cli: Cli, project: Path) -> None:
    for name, source, output in (("a", "b", "a"), ("b", "c", "b"), ("c", "a", "c"), ("d", "c", "d")):
        (project / f"jobs/{name}.yaml").write_text(
            f"job: {name}\nsource: {{type: files, path: 'lake-{source}/n/t/main/{{dataset}}/*.jsonl', format: text}}\n"
            f"extract: {{namespace: n, table: t}}\nwriter: {{type: jsonl}}\noutput: {{path: lake-{output}}}\n"
        )
    called = cli("check")
    assert called.code == 0
    assert called.out.count("in a circle") == 3
    assert "note  jobs/a.yaml: source: reads in a circle what jobs publish: a -> c -> b -> a (each reads" in called.out
    assert "job d\nnote" not in called.out


def test_circles_are_noted_if_a_path_spells_the_dataset_out(cli: Cli, project: Path) -> None:
    def noted(one: str, other: str) -> bool:
        for name, path, output in (("a", f"lake-b/n/t/main/{one}", "a"), ("b", f"lake-a/n/t/main/{other}", "b")):
            (project / f"jobs/{name}.yaml").write_text(
                f"job: {name}\nsource: {{type: files, path: '{path}/*.jsonl', format: text}}\n"
                f"extract: {{namespace: n, table: t}}\nwriter: {{type: jsonl}}\noutput: {{path: lake-{output}}}\n"
            )
        return "in a circle" in cli("check").out

    assert noted("n.t", "{dataset}")
    assert noted("orders", "{dataset}")
    assert noted("{dataset:orders,items}", "{dataset:orders}")
    assert noted("{dataset:orders}", "{dataset}")
    assert noted("n*", "n.t")
    assert noted("n.t", "n.t")
    assert not noted("orders", "n.t"), "a path without names has one dataset"
    assert not noted("{dataset:orders}", "{dataset:items}")


def test_file_that_is_something_else_altogether_is_told_in_bounds(cli: Cli, project: Path) -> None:
    lines = "".join(f"unknown_{number}: {number}\n" for number in range(5_000))
    (project / "jobs" / "numbers.yaml").write_text(lines)
    called = cli("check")
    assert called.code == 2
    assert len(called.out) < 100_000
    assert "more faults; correct these first" in called.out
    assert len(cli("check", "-o", "json").json()["files"][0]["faults"]) == 101


def test_check_of_one_file_says_nothing_of_the_others(cli: Cli, project: Path) -> None:
    (project / "jobs" / "one.yaml").write_text("job: one\n")
    assert cli("check", "jobs/numbers.yaml").out == "ok    jobs/numbers.yaml: job numbers\n"
    called = cli("check", "jobs/one.yaml")
    assert (called.code, "numbers" in called.out) == (2, False)
    called = cli("check", "jobs/two.yaml")
    assert (called.code, "jobs/two.yaml is no job file of the project" in called.err) == (2, True)


def test_value_of_a_variable_is_not_shown_where_a_class_is_not_found(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "opensesame77")
    fork = {"operator": {"type": "records", "operator": "os:Path${API_TOKEN}"}, "branches": [{"name": "one"}]}
    write_job(project, {"a": {"rows": 1}}, job="bad", fork=fork)
    called = cli("check")
    assert "cannot load os:Path" in called.out
    assert "opensesame77" not in called.out


def test_paths_that_no_system_has_are_told_and_links_to_themselves_are_no_bug(cli: Cli, project: Path) -> None:
    file, loop = project / "jobs" / "numbers.yaml", project / "loop"
    loop.symlink_to(loop)
    assert f"{loop} is no job file of the project" in cli("check", str(loop)).err
    said = file.read_text()
    assert '"lake"' in said
    file.write_text(said.replace('"lake"', '"loop"'))
    assert cli("check").code == 0
    assert "Too many levels of symbolic links" in cli("run").out
    file.write_text(said.replace('"lake"', '"la\\u0000ke"'))
    assert "'la\\x00ke' has a character NUL, which no path has" in cli("check").out
