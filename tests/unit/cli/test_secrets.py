"""Values of environment variables stay out of whatever a command stores or prints; passwords in job files are
refused."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.testing.inline_runner import InlineRunner

from .conftest import Cli, write_job

SECRET = "s3cr3t-Word!9"
FAILING: dict[str, dict[str, Any]] = {
    "converter": {"converters": [{"type": "sql", "select": "*, '${PW}' AS z, nope AS y"}]},
    "at-run-time": {"converters": [{"type": "sql", "select": "*, error('${PW}') AS z"}]},
    "row-policy": {"row_policies": [{"type": "sql", "name": "p", "rule": "'${PW}' = nope"}]},
    "rejected-rows": {"row_policies": [{"type": "sql", "name": "p", "rule": "'${PW}' = 'x'"}]},
    "enforced": {"row_policies": [{"type": "sql", "name": "p", "rule": "'${PW}' = 'x'", "on_violation": "fail"}]},
    "fork": {"fork": {"operator": {"type": "sql", "branches": {"x": "'${PW}' = nope"}}, "branches": [{"name": "x"}]}},
    "task-policy": {
        "task_policies": [
            {"type": "sql_aggregate", "name": "p", "aggregates": {"n": "count(*)"}, "rule": "n = length('${PW}') + 99"}
        ]
    },
}


@pytest.mark.parametrize("case", FAILING)
def test_secret_in_sql_that_fails_is_nowhere(
    cli: Cli, project: Path, inline: list[InlineRunner], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("PW", SECRET)
    monkeypatch.setenv("GOBBLIN_DEBUG", "1")
    write_job(project, {"a": {"rows": 25}, "b/c": {"rows": 3}}, **FAILING[case])
    for command in (
        ("check",),
        ("plan",),
        ("run", "-o", "json"),
        ("run",),
        ("state", "runs", "-d", "a"),
        ("commit", "list"),
    ):
        called = cli(*command)
        assert SECRET not in called.out + called.err, command
    stored = [path for path in project.rglob("*") if path.is_file()]
    assert [path for path in stored if SECRET.encode() in path.read_bytes()] == []
    assert any(path.name.startswith("state.db") for path in stored)


@pytest.mark.parametrize("options", ["references", "named"])
def test_secret_from_a_file_is_used_and_is_nowhere(
    cli: Cli, project: Path, inline: list[InlineRunner], tmp_path_factory: pytest.TempPathFactory, options: str
) -> None:
    file = tmp_path_factory.mktemp("elsewhere") / "word.txt"
    file.write_text(SECRET + "-0123456789\n")
    settings = project / "gobblin.yaml"
    settings.write_text(settings.read_text() + f"\nsecrets: {{WORD: {{file: {file}}}}}\n")
    add, keyed = {"type": "add", "columns": {"word": "x"}}, {"type": "hash", "columns": ["word"], "key_env": "WORD"}
    refers = {"type": "sql", "select": "*, length('${WORD}') AS n"}
    write_job(project, {"a": {"rows": 2}}, converters=[add, keyed] if options == "named" else [refers])
    for command in (("check",), ("plan",), ("run",), ("state", "runs", "-d", "a"), ("report",)):
        called = cli(*command)
        assert called.code == 0, called.out + called.err
        assert SECRET not in called.out + called.err, command
    stored = [path for path in project.rglob("*") if path.is_file()]
    assert [path for path in stored if SECRET.encode() in path.read_bytes()] == []
    read = pq.read_table(next(project.rglob("*.parquet"))).to_pylist()[0]
    key = (SECRET + "-0123456789").encode()
    assert read.get("word", "") in ("", hmac.digest(key, b"x", "sha256").hex())
    assert read.get("n", len(key)) == len(key)


JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username='u'"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"type": "query", "url": "postgresql://reader:word@h/shop", "tables": ["t"]}, "source.url"),
        ({"type": "query", "url": "postgresql://reader:word@${H}/shop", "tables": ["t"]}, "source.url"),
        ({"type": "query", "url": "mysql://h/shop?user=u&password=word", "tables": ["t"]}, "source.url"),
        (
            {"type": "spark", "read": {"format": "jdbc", "options": {"password": "word"}}},
            "source.read.options.password",
        ),
        (
            {"type": "spark", "format": "jdbc", "options": {"url": "jdbc:x://h/d;password=word"}},
            "source.options.url",
        ),
        ({"type": "query", "url": "postgresql://reader:wo/rd@h/shop", "tables": ["t"]}, "source.url"),
        (
            {"type": "rest", "url": "https://h", "datasets": ["x"], "params": {"api_key": "word"}},
            "source.params.api_key",
        ),
        ({"type": "rest", "url": "https://h", "datasets": ["x?token=word"]}, "source.datasets[0]"),
        (
            {"type": "rest", "url": "https://h", "datasets": ["x"], "params": {"key": "aB3word" * 3}},
            "source.params.key",
        ),
        (
            {"type": "rest", "url": "https://h", "method": "POST", "body": {"auth": [{"secret": "word"}]}},
            "source.body.auth[0].secret",
        ),
        ({"type": "shop:Orders", "login": {"token": "word"}, "columns": {"token": "string"}}, "source.login.token"),
        ({"type": "shop:Orders", "passwd": 12345}, "source.passwd"),
        ({"type": "shop:Orders", "passwd": "${PW:-word}"}, "source.passwd"),
        (
            {"type": "spark", "format": "kafka", "options": {"kafka.sasl.jaas.config": JAAS + " password='word';"}},
            "source.options.kafka.sasl.jaas.config",
        ),
    ],
)
def test_password_that_stands_in_a_job_file_is_refused_and_not_shown(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, Any], place: str
) -> None:
    monkeypatch.setenv("H", "db.shop")
    write_job(project, {}, source=source)
    called = cli("check", "-o", "json")
    faults = {fault["path"]: fault["problem"] for file in called.json()["files"] for fault in file["faults"]}
    assert faults[place] == "must not hold a password; take it from the environment: ${NAME}"
    assert "source.columns.token" not in faults
    assert "word" not in called.out.replace("password", "")


def test_password_that_is_taken_from_the_environment_is_accepted(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "w0rd-of-mine")
    monkeypatch.setenv("URL", "postgresql://reader:word@h/shop")
    watermark = {"column": "id", "type": "long"}
    for number, url in enumerate(("postgresql://reader:${PW}@h/shop", "${URL}", "postgresql://reader@h/shop")):
        source = {"type": "query", "url": url, "tables": ["t"], "watermark": watermark}
        write_job(project, {}, job=f"q{number}", source=source)
    called = cli("check")
    assert called.code == 0, called.out
