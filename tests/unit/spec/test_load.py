from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import InvalidSpecError, SpecFault, UsageError
from gobblin_dagster.core.secrets import hidden, remember
from gobblin_dagster.spec.document import show_loc
from gobblin_dagster.spec.job import ConstructSpec, OnViolation
from gobblin_dagster.spec.load import find_project, load_job, load_jobs, load_project
from gobblin_dagster.spec.project import ProjectSpec

GOOD = """\
job: flights
source: {type: files, path: data}
extract: {namespace: nyc, table: flights}
output: {path: lake}
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def faults(path: Path, check: Any = None, **environ: str) -> list[str]:
    """Return the faults of a job file, one text each: `line path: problem`."""
    with pytest.raises(InvalidSpecError) as caught:
        load_job(path, check, environ)
    return [f"{fault.line} {fault.path}: {fault.problem}" for fault in caught.value.faults]


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    return tmp_path / "jobs" / "flights.yaml"


def test_load_job_good_file_returns_spec_and_path(job_file: Path) -> None:
    loaded = load_job(write(job_file, GOOD))
    assert loaded.path == job_file
    assert loaded.spec.job == "flights"
    assert loaded.spec.source.options == {"path": "data"}
    assert loaded.spec.fork.branches[0].name == "main"


def test_load_job_of_hundreds_of_branches_takes_little_time(job_file: Path) -> None:
    branches = "".join(f"    - name: b{number}\n" for number in range(400))
    write(job_file, f"{GOOD}fork:\n  branches:\n{branches}")
    began = time.process_time()
    assert len(load_job(job_file).spec.fork.branches) == 400
    assert time.process_time() - began < 5  # it took 20


def test_load_job_reports_every_fault_of_every_kind_at_once_with_lines(job_file: Path) -> None:
    write(
        job_file,
        """\
job: 1flights
source: {type: files, path: data, glob: x}
extract:
  namespace: nyc
  tabel: flights
row_policies:
  - {name: a, type: sql, on_violation: drip}
commit:
  parallelism: 100
  policy: full
  policy: full
execution: {block_bytes: many}
fork:
  branches:
    - name: all
      writer: {type: parquet, level: 99}
    - nam: masked
output: ${OUTPUT}
descripton: x
""",
    )

    def check(kind: str, type_name: str, options: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
        return [((key,), f"no option {key!r} of {kind} {type_name}") for key in options if key in {"glob", "level"}]

    assert faults(job_file, check) == [
        "1 job: expected a name (letters, digits and _, beginning with a letter, at most 63), got '1flights'",
        "2 source.glob: no option 'glob' of source files",
        "3 extract.table: is missing",
        "5 extract.tabel: unknown key; did you mean 'table'?",
        "7 row_policies[0].on_violation: expected 'fail', 'drop' or 'quarantine', got 'drip'",
        "9 commit.parallelism: expected at most 64, got 100",
        "11 commit.policy: the key appears twice, first in line 10",
        "12 execution.block_bytes: expected a whole number, got 'many'",
        "16 fork.branches[0].writer.level: no option 'level' of writer parquet",
        "17 fork.branches[1].name: is missing",
        "17 fork.branches[1].nam: unknown key; did you mean 'name'?",
        "18 output: environment variable OUTPUT is not set; set it, or give a default: ${OUTPUT:-...}",
        "19 descripton: unknown key; did you mean 'description'?",
    ]


def test_load_job_message_names_file_and_line(job_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    write(job_file, GOOD + "converters: none\n")
    with pytest.raises(InvalidSpecError, match=r"jobs/flights\.yaml:5: converters: expected a list, got 'none'"):
        load_job(job_file)


def test_name_alone_is_a_construct_without_options(job_file: Path) -> None:
    write(job_file, GOOD + "writer: orc\nconverters: [to_json, {type: filter}]\ntask_policies: [row_count]\n")
    checked: list[tuple[str, str, Mapping[str, Any]]] = []

    def check(kind: str, name: str, options: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
        checked.append((kind, name, options))
        return []

    job = load_job(job_file, check).spec
    assert job.writer == ConstructSpec(type="orc")
    assert [(converter.type, converter.options) for converter in job.converters] == [("to_json", {}), ("filter", {})]
    assert [policy.type for policy in job.task_policies] == ["row_count"]
    assert {("writer", "orc"), ("converter", "to_json"), ("task_policy", "row_count")} <= {one[:2] for one in checked}


@pytest.mark.parametrize(
    ("addition", "fault"),
    [
        ("description: 5", '5 description: expected text, got 5; write "5", in quotes, to make it text'),
        ("description: true", '5 description: expected text, got true; write "true", in quotes, to make it text'),
        ("description: {a: 1}", "5 description: expected text, got keys and values (a)"),
        ("description: [1, 2]", "5 description: expected text, got a list of 2"),
        ("description:", "5 description: expected text, got nothing"),
        ("commit: successful", "5 commit: expected keys and values, got 'successful'"),
        ("converters: {type: sql}", "5 converters: expected a list, got keys and values (type)"),
        ("converters: [5]", "5 converters[0]: expected a type, or keys and values with `type`, got 5"),
        ("converters: [{select: x}]", "5 converters[0].type: is missing"),
        ("commit: {redo_limit: 0}", "5 commit.redo_limit: expected at least 1, got 0"),
        ("commit: {redo_limit: 1.5}", "5 commit.redo_limit: expected a whole number, got 1.5"),
        ("commit: {redo_limit: 1e308}", "5 commit.redo_limit: expected a smaller number, got 1e+308"),
        ("commit: {policy: ful}", "5 commit.policy: expected 'full', 'successful' or 'partial', got 'ful'"),
        ("fork: {branches: []}", "5 fork.branches: expected at least 1 item(s), got 0"),
        (
            "task_policies: [{type: a, enforce: perhaps}]",
            "5 task_policies[0].enforce: expected true or false, got 'perhaps'",
        ),
        ("zzz: 1", "5 zzz: unknown key; known: asset, commit, converters, description"),
        (
            f"commit: {{policy: {'x' * 500}}}",
            "5 commit.policy: expected 'full', 'successful' or 'partial', got 'xxxxxxx",
        ),
    ],
)
def test_load_job_single_fault_in_plain_words(job_file: Path, addition: str, fault: str) -> None:
    (found,) = faults(write(job_file, f"{GOOD}{addition}\n"))
    assert found.startswith(fault)
    assert len(found) < 250


@pytest.mark.parametrize(
    ("addition", "fault"),
    [
        (
            "fork: {branches: [{name: a}, {name: a}]}",
            "5 fork.branches: branch names must differ, got a more than once",
        ),
        ("fork: {branches: [{name: quarantine}]}", "5 fork.branches[0].name: the name 'quarantine' is reserved"),
        ("fork: {branches: [{name: pre_fork}]}", "5 fork.branches[0].name: the name 'pre_fork' is reserved"),
        (
            "row_policies: [{name: a, type: x}, {name: a, type: y}]",
            "5 row_policies: row policy names must differ, got a more than once",
        ),
        (
            f"converters: [{', '.join(['{type: x}'] * 201)}]",
            "5 converters: expected at most 200 converters in a row, got 201; ",
        ),
        (
            f"fork: {{branches: [{{name: a, converters: [{', '.join(['{type: x}'] * 201)}]}}]}}",
            "5 fork.branches[0].converters: expected at most 200 converters in a row, got 201; ",
        ),
    ],
)
def test_load_job_rules_between_fields(job_file: Path, addition: str, fault: str) -> None:
    (found,) = faults(write(job_file, f"{GOOD}{addition}\n"))
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "1 : is empty; expected keys, at least job, source, extract, output"),
        ("# nothing\n", "1 : is empty; expected keys, at least job, source, extract, output"),
        ("- a\n", "1 : expected keys and values, got a list of 1"),
        ("just text\n", "1 : expected keys and values, got 'just text'"),
    ],
)
def test_load_job_document_of_a_wrong_shape(job_file: Path, text: str, fault: str) -> None:
    assert faults(write(job_file, text)) == [fault]


def test_load_job_checks_constructs_everywhere_without_their_fields(job_file: Path) -> None:
    write(
        job_file,
        GOOD
        + """\
converters: [{type: c1, x: 1}]
row_policies: [{type: r1, name: n, on_violation: drop, x: 2}]
task_policies: [{type: t1, name: n, enforce: false, x: 3}]
writer: {type: w1, x: 4}
fork:
  operator: {type: f1, x: 5}
  branches:
    - name: a
      converters: [{type: c2}, {type: c3, x: 6}]
      row_policies: [{type: r2, name: m}]
      task_policies: [{type: t2}]
      writer: {type: w2}
""",
    )
    seen: list[tuple[str, str, dict[str, Any]]] = []

    def check(kind: str, type_name: str, options: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
        seen.append((kind, type_name, dict(options)))
        return []

    loaded = load_job(job_file, check)
    assert loaded.spec.row_policies[0].on_violation is OnViolation.DROP
    assert sorted(seen, key=lambda one: one[:2]) == [
        ("converter", "c1", {"x": 1}),
        ("converter", "c2", {}),
        ("converter", "c3", {"x": 6}),
        ("fork", "f1", {"x": 5}),
        ("row_policy", "r1", {"x": 2}),
        ("row_policy", "r2", {}),
        ("source", "files", {"path": "data"}),
        ("task_policy", "t1", {"x": 3}),
        ("task_policy", "t2", {}),
        ("writer", "w1", {"x": 4}),
        ("writer", "w2", {}),
    ]


def test_load_job_never_shows_values_of_variables(job_file: Path) -> None:
    write(
        job_file,
        GOOD.replace("data", '"${PASSWORD}"') + "commit: {redo_limit: '${PASSWORD}'}\ndescription: ${NUMBER}\n",
    )

    def check(kind: str, type_name: str, options: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
        return [((), f"cannot use {dict(options)!r}"), (("path",), f"no such folder {options['path'][:9]}…")]

    found = faults(job_file, check, PASSWORD="pa'ss\\word-1234", NUMBER="123456")
    assert found == [
        "2 source: cannot use {'path': \"${PASSWORD}\"}",
        "2 source.path: no such folder ${PASSWORD}…",
        "5 commit.redo_limit: expected a whole number, got ${PASSWORD}",
        "6 description: expected text, got ${NUMBER}, whose value was read as a number or truth value; "
        'write "${NUMBER}", in quotes, to make it text',
    ]


def test_problem_with_a_long_value_is_shortened_after_its_secret_is_hidden() -> None:
    remember({"s3cr3t-" * 100: "${LONG}"})
    fault = SpecFault("writer", f"no type {'x' * 100_000} {'s3cr3t-' * 100}{'y' * 900}; see the list")
    assert (len(fault.problem) < 5000, fault.problem[-14:], "s3cr3t" in fault.problem) == (
        True,
        "; see the list",
        False,
    )


def test_load_job_absent_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read .*nowhere\.yaml: No such file"):
        load_job(tmp_path / "nowhere.yaml")


def test_load_project_reads_defaults_and_references(tmp_path: Path) -> None:
    write(tmp_path / "gobblin.yaml", "project: demo\nlease_ttl_s: ${TTL}\nspark: {conf: {a.b: '5'}}\n")
    project = load_project(tmp_path, {"TTL": "90"})
    assert project == ProjectSpec.model_validate(
        {"project": "demo", "lease_ttl_s": 90, "spark": {"conf": {"a.b": "5"}}}
    )


def test_load_project_fault_has_line_and_nearest_name(tmp_path: Path) -> None:
    write(tmp_path / "gobblin.yaml", "project: demo\nspark:\n  mastr: local\n")
    with pytest.raises(InvalidSpecError, match=r"gobblin\.yaml:3: spark\.mastr: unknown key; did you mean 'master'\?"):
        load_project(tmp_path)


def test_find_project_walks_up(tmp_path: Path) -> None:
    write(tmp_path / "gobblin.yaml", "project: demo\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find_project(tmp_path / "a" / "b") == tmp_path
    assert find_project(tmp_path) == tmp_path


def test_find_project_without_one_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No gobblin\.yaml in .*; *|No gobblin\.yaml.*gobblin init NAME"):
        find_project(tmp_path)


def test_load_jobs_takes_both_extensions_in_order_and_keeps_going(tmp_path: Path) -> None:
    write(tmp_path / "jobs" / "b.yml", GOOD.replace("job: flights", "job: second"))
    write(tmp_path / "jobs" / "a.yaml", GOOD)
    write(tmp_path / "jobs" / "c.yaml", "job: third\n")
    write(tmp_path / "jobs" / "notes.txt", "no job")
    jobs, errors = load_jobs(tmp_path, ProjectSpec(project="demo"))
    assert [job.spec.job for job in jobs] == ["flights", "second"]
    assert [Path(error.file).name for error in errors] == ["c.yaml"]
    assert len(errors[0].faults) == 3


def test_load_jobs_refuses_one_name_in_two_files_naming_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "jobs" / "a.yaml", GOOD)
    write(tmp_path / "jobs" / "b.yaml", "# copy\n" + GOOD)
    write(tmp_path / "jobs" / "c.yaml", GOOD.replace("job: flights", "job: other"))
    jobs, errors = load_jobs(tmp_path, ProjectSpec(project="demo"))
    assert [job.spec.job for job in jobs] == ["other"]
    assert [str(error) for error in errors] == [
        "jobs/a.yaml has 1 fault:\n  jobs/a.yaml:1: job: the name 'flights' is taken by jobs/b.yaml too; "
        "it is the key of the job's state, choose another",
        "jobs/b.yaml has 1 fault:\n  jobs/b.yaml:2: job: the name 'flights' is taken by jobs/a.yaml too; "
        "it is the key of the job's state, choose another",
    ]


def test_load_jobs_refuses_names_of_one_output_that_differ_in_case_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "jobs" / "a.yaml", GOOD)
    write(tmp_path / "jobs" / "b.yaml", GOOD.replace("job: flights", "job: Flights"))
    apart = GOOD.replace("job: flights", "job: FLIGHTS").replace("output: {path: ", "output: {path: own/")
    write(tmp_path / "jobs" / "c.yaml", apart)
    jobs, errors = load_jobs(tmp_path, ProjectSpec(project="demo"))
    assert [job.spec.job for job in jobs] == ["FLIGHTS"]
    assert [error.faults[0].text(error.file).partition(", at least")[0] for error in errors] == [
        "jobs/a.yaml:1: job: the manifests of job 'flights' would share a folder with "
        "those of 'Flights' in jobs/b.yaml",
        "jobs/b.yaml:1: job: the manifests of job 'Flights' would share a folder with "
        "those of 'flights' in jobs/a.yaml",
    ]


def test_load_jobs_tells_a_link_to_nothing(tmp_path: Path) -> None:
    write(tmp_path / "jobs" / "a.yaml", GOOD)
    (tmp_path / "jobs" / "b.yaml").symlink_to("gone.yaml")
    (tmp_path / "jobs" / "c.yaml").symlink_to("c.yaml")
    (tmp_path / "jobs" / ".#a.yaml").symlink_to("me@here.17:1")
    jobs, errors = load_jobs(tmp_path, ProjectSpec(project="demo"))
    assert [job.spec.job for job in jobs] == ["flights"]
    assert [(Path(error.file).name, len(error.faults)) for error in errors] == [("b.yaml", 1), ("c.yaml", 1)]
    assert "No such file" in errors[0].faults[0].problem


def test_pipe_or_folder_in_place_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "c.job").mkdir(parents=True)  # a folder of Gobblin's job files
    for name in ("jobs/a.yaml", "jobs/b.pull"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "jobs/d.yml").mkdir()
    (tmp_path / "jobs/.hidden.yaml").mkdir()
    jobs, errors = load_jobs(tmp_path, ProjectSpec(project="demo"))
    assert not jobs
    assert [Path(error.file).name for error in errors] == ["a.yaml", "b.pull", "d.yml"]
    assert all("it is no regular file" in error.faults[0].problem for error in errors)
    for put in (os.mkfifo, os.mkdir):
        (inner := tmp_path / put.__name__).mkdir()
        put(inner / "gobblin.yaml")
        assert find_project(inner) == inner
        with pytest.raises(UsageError, match=r"Cannot read .*gobblin\.yaml: it is no regular file"):
            load_project(inner)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.pull", "include=../.env"),
        ("a.pull", "include={folder}/.env"),
        ("a.pull", "gobblin.template.uri=../.env"),
        ("a.pull", "include=link.txt"),
        ("a.pull", ""),
        ("a.yaml", ""),
    ],
)
def test_files_outside_of_the_jobs_folder_are_read_only_below_allowed_paths(
    name: str, text: str, tmp_path: Path
) -> None:
    write(tmp_path / ".env", "TOKEN=its-token\n")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "link.txt").symlink_to("../.env")
    if text:
        write(tmp_path / "jobs" / name, text.format(folder=tmp_path))
    else:
        (tmp_path / "jobs" / name).symlink_to("../.env")

    def told(*paths: str) -> str:
        allow = {"paths": list(paths)}
        (error,) = load_jobs(tmp_path, ProjectSpec.model_validate({"project": "p", "allow": allow}))[1]
        return str(error)

    assert "is outside of the jobs folder" in told("lake")
    assert "its-token" not in told("lake")
    assert "is outside of the jobs folder" not in told("lake", ".env")


def test_load_jobs_of_a_service_needs_no_folder(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    assert load_jobs(tmp_path, ProjectSpec(project="demo")) == ([], [])


def test_load_jobs_empty_folder_has_no_jobs(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    assert load_jobs(tmp_path, ProjectSpec(project="demo")) == ([], [])


def test_load_jobs_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Project 'demo' has no jobs folder .*pipelines"):
        load_jobs(tmp_path, ProjectSpec(project="demo", jobs="pipelines"))


def test_show_loc_writes_places_as_people_read_them() -> None:
    assert show_loc(("fork", "branches", 1, "writer", "type")) == "fork.branches[1].writer.type"
    assert show_loc(()) == ""


@pytest.mark.parametrize(
    ("state", "environ", "hides", "shows"),
    [
        ("${S}", {"S": "postgresql://u:p%40ss-w0rd@h/db"}, ["p%40ss-w0rd", "p@ss-w0rd"], "h/db"),
        ("postgresql://u:${S}@h/${DB}", {"S": "pass-w0rd", "DB": "lake-db"}, ["pass-w0rd"], "lake-db"),
        ("sqlite:///${S}.db", {"S": "state-1"}, [], "state-1"),
    ],
)
def test_password_of_the_state_store_is_hidden_and_its_place_is_not(
    tmp_path: Path, state: str, environ: dict[str, str], hides: list[str], shows: str
) -> None:
    (tmp_path / "gobblin.yaml").write_text(f'project: p\nstate: "{state}"\n')
    assert load_project(tmp_path, environ).state
    assert [secret for secret in hides if secret in hidden(f"login with {secret}")] == []
    assert hidden(shows) == shows


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ("state: 'postgresql://u:hunter22@h/d'", "state"),
        ("state: '${S:-postgresql://u:hunter22@h/d}'", "state"),
        ("service: {store: 'postgresql://u:hunter22@h/d'}", "service.store"),
        ("spark: {remote: 'sc://h:1/;token=hunter22'}", "spark.remote"),
        ("spark: {conf: {spark.hadoop.fs.s3a.secret.key: hunter22}}", "spark.conf.spark.hadoop.fs.s3a.secret.key"),
        ("worker: {inlet: {type: kafka, config: {sasl.password: hunter22}}}", "worker.inlet.config.sasl.password"),
        ("spark: {conf: {a.javaOptions: '-Da=b -Dx.password=hunter22'}}", "spark.conf.a.javaOptions"),
        ("spark: {conf: {a.javaOptions: '\"-Dx.password=hunter22\"'}}", "spark.conf.a.javaOptions"),
        (
            """spark: {conf: {a.javaOptions: '-Djaas.config="x.LoginModule required password=hunter22;"'}}""",
            "spark.conf.a.javaOptions",
        ),
        (
            "classes: {A: {type: delta, storage_options: {AWS_SECRET_ACCESS_KEY: hunter22}}}",
            "classes.A.storage_options.AWS_SECRET_ACCESS_KEY",
        ),
        ("classes: {com.x.A: {type: 'm:A', token: hunter22}}", "classes.com.x.A.token"),
        ("classes: {A: {type: kafka, config: {sasl.password: hunter22}}}", "classes.A.config.sasl.password"),
        ("service: {listeners: [{type: 'm:A', token: hunter22}]}", "service.listeners[0].token"),
    ],
)
def test_literal_password_of_the_project_is_refused_and_not_shown(tmp_path: Path, settings: str, place: str) -> None:
    (tmp_path / "gobblin.yaml").write_text(f"project: p\n{settings}\n")
    with pytest.raises(InvalidSpecError) as caught:
        load_project(tmp_path)
    (fault,) = caught.value.faults
    assert (fault.path, fault.line, "take it from the environment" in fault.problem) == (place, 2, True)
    assert "hunter22" not in caught.value.message()


@pytest.mark.parametrize(
    "settings",
    [
        "alerts: {webhook_env: 'https://hooks/hunter22'}",
        "secrets: {PW: hunter22}",
        "secrets: {PW: {command: echo hunter22}}",
    ],
)
def test_text_in_place_of_the_name_of_a_secret_is_not_shown(tmp_path: Path, job_file: Path, settings: str) -> None:
    (tmp_path / "gobblin.yaml").write_text(f"project: p\n{settings}\n")
    with pytest.raises(InvalidSpecError, match="got a text that is not shown, as it may be a secret") as caught:
        load_project(tmp_path)
    assert "hunter22" not in str(caught.value)


def test_settings_of_the_project_that_name_secrets_are_taken(tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text(
        "project: p\nstate: 'postgresql://u@h/d'\n"
        "secrets: {PW: {command: [sh, -c, 'PASSWORD=$$(cat x); echo $$PASSWORD']}}\n"
        "spark:\n  conf:\n    spark.hadoop.fs.s3a.secret.key: '${SK}'\n"
        """    a.javaOptions: '"-Dx.password=${SK}" -Djaas.config="x.LoginModule required password=\\\"${SK}\\\";"'\n"""
        "classes: {com.x.A: {type: 'm:A', keys: {password: orders.password}}}\n"
        "worker: {inlet: {type: rest, certificate: a.pem, key: k.pem, ca: ca.pem}}\n"
    )
    assert load_project(tmp_path, {"SK": "hunter22"}).spark.conf["spark.hadoop.fs.s3a.secret.key"] == "hunter22"


def test_values_of_variables_that_settings_name_are_hidden_from_the_start(
    tmp_path: Path, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when the setting is used: a function of the job may read and raise them before."""
    monkeypatch.setenv("STAMP", "zaunkoenig-6143")
    monkeypatch.setenv("SEAL", "rotkehlchen-8125")
    write(tmp_path / "gobblin.yaml", "project: p\nalerts: {webhook_env: STAMP}\n")
    load_project(tmp_path)
    load_job(write(job_file, f"{GOOD}converters: [{{type: hash, columns: [a], key_env: SEAL}}]\n"))
    assert hidden("zaunkoenig-6143 rotkehlchen-8125") == "${STAMP} ${SEAL}"


@pytest.mark.parametrize("written", ["${SECRET:-x}", "${SECRET}"])
def test_refused_variable_is_told_in_the_same_words_whether_it_is_set_or_not(tmp_path: Path, written: str) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "j.yaml").write_text(
        f"job: j\nsource: {{type: files, path: 'in/{{dataset}}.csv', format: csv}}\n"
        f"extract: {{namespace: n, table: t}}\noutput: {{path: '{written}'}}\n"
    )
    project = ProjectSpec.model_validate({"project": "p", "allow": {"environment": ["SHOP_*"]}})
    said = {str(load_jobs(tmp_path, project, environ=known)[1]) for known in ({}, {"SECRET": ""}, {"SECRET": "lake"})}
    [same] = said
    assert "the environment variable SECRET is not in `allow.environment`" in same
    assert "not set" not in same
