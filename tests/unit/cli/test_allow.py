"""Allow-lists of gobblin.yaml: what job files of others may touch, refused before anything is imported, read or
connected."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.engine.project import open_project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.testing.inline_runner import InlineRunner

from .conftest import Cli, write_job

ROWS = "gobblin_dagster.testing.rows_source"
FILES: dict[str, Any] = {"type": "files", "path": "in/{dataset}/*.csv", "format": "csv"}
QUERY: dict[str, Any] = {"type": "query", "tables": ["t"], "watermark": {"column": "id", "type": "long"}}


def allow(root: Path, **lists: list[str]) -> None:
    """Write gobblin.yaml with lists; JSON is YAML."""
    (root / "gobblin.yaml").write_text(json.dumps({"project": "tests", "allow": lists}))


@pytest.mark.parametrize(
    ("lists", "parts", "place", "named"),
    [
        ({"paths": ["in"]}, {"source": FILES}, "output.path", "'lake'"),
        ({"paths": ["lake"]}, {"source": FILES}, "source.path", "allow.paths"),
        (
            {"paths": ["lake"]},
            {"source": {**FILES, "path": "lake/../../{dataset}/*.csv"}},
            "source.path",
            "allow.paths",
        ),
        (
            {"paths": ["lake"]},
            {"source": {**FILES, "path": "webdav://host/{dataset}/*.csv"}},
            "source.path",
            "webdav:",
        ),
        ({"paths": ["lake"]}, {"source": {**QUERY, "url": "sqlite:////etc/x.db"}}, "source.url", "allow.paths"),
        ({"modules": []}, {}, "source.type", ROWS),
        (
            {"modules": [ROWS]},
            {"converters": [{"type": "function", "function": "os:system"}]},
            "converters[0].function",
            "'os:system'",
        ),
        ({"hosts": ["db.shop"]}, {"source": {**QUERY, "url": "postgresql://evil/x"}}, "source.url", "'evil:5432'"),
        (
            {"hosts": ["broker:9092"]},
            {"source": {"type": "kafka", "brokers": "broker:9092,evil:9092", "topics": ["t"]}},
            "source.brokers",
            "'evil:9092'",
        ),
        ({"sources": ["kafka"]}, {"source": FILES}, "source.type", "the source 'files' is not in `allow.sources`"),
        ({"sources": ["files"]}, {}, "source.type", f"'{ROWS}:RowsSource' is not in `allow.sources` of gobblin.yaml"),
        (
            {"environment": ["SHOP_*"]},
            {"converters": [{"type": "add", "columns": {"leak": "${STATE_URL}"}}]},
            "converters[0].columns.leak",
            "STATE_URL",
        ),
        (
            {"environment": []},
            {"converters": [{"type": "hash", "columns": ["id"], "key_env": "STATE_URL"}]},
            "converters[0].key_env",
            "STATE_URL",
        ),
        (
            {"paths": ["lake"]},
            {"source": {"type": "spark", "query": "select * from csv.`/etc/passwd`", "watermark": {"column": "id"}}},
            "source.query",
            "Spark's SQL",
        ),
    ],
)
def test_what_no_list_names_is_refused_by_check_and_plan(
    cli: Cli,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    lists: dict[str, list[str]],
    parts: dict[str, Any],
    place: str,
    named: str,
) -> None:
    monkeypatch.setenv("STATE_URL", "postgresql://state:s3cr3t-word@h/db")
    write_job(project, {"a": {"rows": 1}}, **parts)
    allow(project, **lists)
    called = cli("check", "-o", "json")
    faults = {fault["path"]: fault["problem"] for file in called.json()["files"] for fault in file["faults"]}
    assert called.code == 2
    assert named in faults[place]
    planned = cli("plan")
    assert (planned.code, named in planned.err) == (2, True)
    assert "s3cr3t-word" not in called.out + planned.err


def test_modules_that_are_not_allowed_are_not_even_imported(cli: Cli, project: Path) -> None:
    (project / "mine.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    write_job(project, {}, source={"type": "mine:Source"})
    allow(project, modules=["yours"])
    assert cli("check").code == cli("plan").code == 2
    allow(project, sources=["files"])
    assert cli("check").code == cli("plan").code == 2
    assert not (project / "imported").exists()


def test_job_within_the_lists_runs(cli: Cli, project: Path, inline: list[InlineRunner]) -> None:
    allow(project, paths=["lake"], modules=[ROWS], environment=[], hosts=[], sources=[f"{ROWS}:RowsSource"])
    called = cli("run")
    assert called.code == 0, called.err + called.out


def test_file_that_a_link_brings_into_an_allowed_folder_is_not_read(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    for folder, text in (("in/a", "x\n1\n"), ("private", "x\n2\n")):
        (project / folder).mkdir(parents=True)
        (project / folder / "f.csv").write_text(text)
    (project / "in" / "b").symlink_to(project / "private")
    (project / "in" / "a" / "g.csv").symlink_to(project / "private" / "f.csv")
    for path in project.rglob("*.csv"):
        os.utime(path, (1, 1))
    write_job(project, {}, source={**FILES, "new_files": "name"})
    allow(project, paths=["in", "lake"])
    called = cli("run")
    assert called.code != 0
    assert "`allow.paths` of gobblin.yaml" in called.out
    published = [path.read_bytes() for path in (project / "lake").rglob("*.parquet") if "staging" not in path.parts]
    assert all(b"2" not in body[:8] for body in published)
    assert cli("show", "b").code == 2


def test_link_in_the_output_does_not_lead_out_of_what_is_allowed(project: Path, tmp_path: Path) -> None:
    allow(project, paths=["lake"])
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / "lake" / "test" / "numbers").mkdir(parents=True)
    (project / "lake" / "test" / "numbers" / "main").symlink_to(outside)
    opened = open_project(project)
    result = run_job(opened, opened.job("numbers"), runner=InlineRunner())
    messages = [failure.message for dataset in result.datasets for failure in dataset.failures]
    assert len(messages) == 2
    assert all("allow.paths" in message for message in messages)
    assert list(outside.iterdir()) == []


def test_tasks_hold_their_job_against_the_lists_again(project: Path) -> None:
    opened = open_project(project)
    lists = {"allow": {"modules": ["other"]}}
    closed = type(opened)(opened.root, opened.spec.model_validate({"project": "tests", **lists}), opened.jobs)
    result = run_job(closed, closed.job("numbers"), runner=InlineRunner())
    failures = [failure for dataset in result.datasets for failure in dataset.failures]
    assert {failure.code for failure in failures} == {"spec-invalid"}
    assert all("allow.modules" in failure.message for failure in failures)
