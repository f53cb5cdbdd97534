"""Jobs of flows: `${NAME}` and variables that options name come from the executor's environment or its `secrets`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import InvalidSpecError
from gobblin_dagster.core.secrets import hidden, variable
from gobblin_dagster.engine.project import Project
from gobblin_dagster.service.catalog.templates import keys_body
from gobblin_dagster.service.executors.job_body import body_places, job_target, read_job_body
from gobblin_dagster.service.model import DagJob
from gobblin_dagster.service.store.place_rows import Target
from gobblin_dagster.spec.project import ProjectSpec

BODY = json.dumps(
    {
        "job": "shop",
        "source": {"type": "files", "path": "in/{dataset}.csv", "format": "csv"},
        "extract": {"namespace": "shop", "table": "orders"},
        "converters": [
            {"type": "add", "columns": {"word": "${WORD}"}},
            {"type": "hash", "columns": ["name"], "key_env": "KEY"},
        ],
        "output": {"path": "lake"},
    }
)


def test_job_of_a_flow_finds_the_secrets_of_its_executor(tmp_path: Path) -> None:
    (tmp_path / "word.txt").write_text("word-of-a-file\n")
    (tmp_path / "key.txt").write_text("key-of-16-bytes-or-more")
    spec = ProjectSpec.model_validate(
        {"project": "p", "secrets": {"WORD": {"file": "word.txt"}, "KEY": {"file": "key.txt"}, "NO": {"file": "no"}}}
    )
    job = read_job_body("shop", BODY, tmp_path, spec)
    assert job.converters[0].options["columns"] == {"word": "word-of-a-file"}

    context = Project(tmp_path, spec, (job,)).run_context(job, "run-1")
    assert context.variables == {"KEY": "key-of-16-bytes-or-more"}, "those that no setting names are not looked up"
    assert variable("KEY") == "key-of-16-bytes-or-more"
    assert hidden("word-of-a-file, key-of-16-bytes-or-more") == "${WORD}, ${KEY}"


def test_job_with_a_source_that_the_executors_project_does_not_allow_is_refused(tmp_path: Path) -> None:
    spec = ProjectSpec.model_validate({"project": "p", "allow": {"sources": ["kafka"]}})
    with pytest.raises(InvalidSpecError, match=r"source.type: the source 'files' is not in `allow.sources`"):
        read_job_body("shop", BODY.replace("${WORD}", "word"), tmp_path, spec)


def test_secret_that_cannot_be_found_fails_the_job_with_its_place(tmp_path: Path) -> None:
    spec = ProjectSpec.model_validate({"project": "p", "secrets": {"WORD": {"file": "nowhere"}}})
    with pytest.raises(InvalidSpecError, match=r"secrets\.WORD: nowhere cannot be used: No such file"):
        read_job_body("shop", BODY, tmp_path, spec)


def place(**parts: Any) -> frozenset[str]:
    return body_places("rows", json.dumps(PLACED | parts))


PLACED: dict[str, Any] = {
    "job": "rows",
    "source": {"type": "files", "path": "in/{dataset}.csv", "format": {"type": "csv"}},
    "extract": {"namespace": "test", "table": "rows"},
    "output": {"path": "lake"},
}
TABLE = {"type": "sql_table", "url": "postgresql://anna@db:5432/shop", "table": "orders"}
TOPIC = {"type": "kafka_topic", "brokers": "one:9092,two:9092", "topic": "clicks"}


def test_jobs_that_publish_to_one_place_have_a_digest_in_common() -> None:
    assert place(job="other", source={"type": "rest"}) == place(), "only its places count"
    assert not place(output={"path": "other"}) & place()
    assert not place(extract={"namespace": "test", "table": "other"}) & place()
    assert place(output={"path": "${LAKE}/x"}) == place(output={"path": "${LAKE}/x"}) != place()
    fork = {"branches": [{"name": "a"}, {"name": "b"}]}
    assert len(place(fork=fork) & place(fork={"branches": [{"name": "b"}, {"name": "c"}]})) == 1
    table = place(publisher=TABLE)
    assert (
        place(publisher=TABLE | {"mode": "upsert", "key": ["id"]}) == table != place(publisher=TABLE | {"table": "t"})
    )
    assert place(publisher=TABLE | {"url": "${SHOP}"}) == place(publisher=TABLE | {"url": "${SHOP}"}) != table
    assert place(publisher=TOPIC) & place(publisher=TOPIC | {"brokers": "two:9092,three:9092"})


def test_jobs_with_the_same_source_and_steps_have_the_digest_of_their_rows_in_common() -> None:
    def rows(executor: str = "east", **parts: Any) -> str:
        target = job_target(DagJob("rows", executor, json.dumps(PLACED | parts)))
        assert target.places == place(**parts)
        return target.rows

    assert rows(job="other", output={"path": "other"}, commit={"keep_snapshots": 3}, description="x") == rows() != ""
    assert rows(executor="west") != rows(), "a variable may have another value there"
    others: list[dict[str, Any]] = [
        {"source": PLACED["source"] | {"path": "in/{dataset}.txt"}},
        {"extract": {"namespace": "test", "table": "other"}},
        {"converters": [{"type": "drop", "columns": ["a"]}]},
        {"row_policies": [{"name": "one", "type": "not_null", "columns": ["a"]}]},
        {"fork": {"branches": [{"name": "a"}]}},
    ]
    assert len({rows(**other) for other in others} | {rows()}) == 1 + len(others)
    assert job_target(DagJob("rows", "east", "[")) == Target(), "nobody knows"


def test_job_that_only_its_executor_can_read_has_a_place_by_its_words() -> None:
    numbers = {"execution": {"tasks_per_core": "${N}"}}
    assert place(**numbers) == place(**numbers, job="other") != place(**numbers, output={"path": "other"})
    branches = {"fork": {"branches": [{"name": "a", "path": "${X}/{dataset}"}]}}
    assert place(**branches) == place(**branches, job="other") != frozenset()
    assert body_places("rows", "[") == frozenset()
    keys = {"source.class": "org.apache.gobblin.Unknown"}
    assert body_places("rows", keys_body(keys)) == frozenset()


@pytest.mark.parametrize("part", ["publisher", "writer"])
def test_no_class_of_users_is_imported_to_tell_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    (tmp_path / "own_parts_of_a_flow.py").write_text("raise SystemExit('it was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = {part: {"type": "own_parts_of_a_flow:Own"}}
    assert place(**own) == place(**own, job="other") != place(**own, output={"path": "other"})
