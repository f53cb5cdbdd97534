from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import SourceError
from gobblin_dagster.engine.snapshots.audit import audit_dataset
from tests.unit.engine.jobs import job_spec, project, run


@pytest.mark.parametrize(
    "writer",
    [
        {"type": "parquet"},
        {"type": "csv"},
        {"type": "csv", "compression": "gzip"},
        {"type": "csv", "header": False, "delimiter": ";"},
        {"type": "jsonl"},
        {"type": "jsonl", "compression": "zstd"},
        {"type": "csv", "compression": "gzip", "file_name": "{branch}-{unique}-{rows}"},
        {"type": "orc"},
        {"type": "avro"},
    ],
    ids=str,
)
def test_audit_counts_source_and_files_anew(tmp_path: Path, writer: dict[str, Any]) -> None:
    root = tmp_path / "dots.in.names"
    policies = [{"name": "has_value", "type": "not_null", "columns": ["value"]}]
    job = job_spec({"a": {"rows": 25}}, row_policies=policies, writer=writer)
    run(root, job)
    context = ConstructContext(job=job.job, base_dir=str(root))
    source = registry.create(ConstructKind.SOURCE, job.source, context)
    store = project(root, job).open_store()
    audit = audit_dataset(job, source, store, "a")
    assert audit is not None
    assert (audit.source_rows, audit.published_rows) == (25, {"all": 22, "masked": 22, "quarantine": 3})
    assert (audit.lost, audit.duplicated) == (0, 0)
    assert audit_dataset(job, source, store, "never published") is None

    store.close()


def test_csv_is_counted_as_its_writer_wrote_it(tmp_path: Path) -> None:
    odd = (
        "case id when 1 then 'a,b,c' when 2 then 'say \"x\",\ny' when 3 then repeat('x', 2000000) "
        "else value end as value"
    )
    writer = {"type": "csv", "delimiter": ";", "compression": "zstd"}
    job = job_spec({"a": {"rows": 25}}, converters=[{"type": "sql", "select": f"id, {odd}"}], writer=writer)
    run(tmp_path, job)
    source = registry.create(ConstructKind.SOURCE, job.source, ConstructContext(job=job.job, base_dir=str(tmp_path)))
    store = project(tmp_path, job).open_store()
    audit = audit_dataset(job, source, store, "a")
    assert audit is not None
    assert audit.published_rows["all"] == 25
    store.close()


def test_audit_finds_lost_and_duplicated_rows(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 25}}, writer={"type": "jsonl"})
    run(tmp_path, job)
    source = registry.create(ConstructKind.SOURCE, job.source, ConstructContext(job=job.job, base_dir=str(tmp_path)))
    (file,) = (tmp_path / "lake/test/numbers/all").rglob("*.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    store = project(tmp_path, job).open_store()
    for text, lost, duplicated in [("".join(lines[:-3]), 3, 0), ("".join([*lines, lines[0]]), 0, 1)]:
        file.write_text(text)
        audit = audit_dataset(job, source, store, "a")
        assert audit is not None
        assert (audit.lost, audit.duplicated) == (lost, duplicated)
    store.close()


def test_rows_that_are_gone_from_the_source_are_no_duplicates(tmp_path: Path) -> None:
    parts = [tmp_path / "in/a/1.csv", tmp_path / "in/a/2.csv"]
    parts[0].parent.mkdir(parents=True)
    for file in parts:
        file.write_text("id,value\n1,x\n2,y\n")
    files = {"type": "files", "path": "in/{dataset}/*.csv", "format": "csv", "new_files": "name"}
    job = job_spec({}, source=files)
    run(tmp_path, job)
    source = registry.create(ConstructKind.SOURCE, job.source, ConstructContext(job=job.job, base_dir=str(tmp_path)))
    with closing(project(tmp_path, job).open_store()) as store:
        for file, said in zip(parts, ("only 2 of the 4 rows", "none of the 4 rows any more"), strict=True):
            file.unlink()
            with pytest.raises(SourceError, match=f"it holds {said} that were read from dataset 'a'"):
                audit_dataset(job, source, store, "a")


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_audit_counts_lines_and_no_branch_that_only_prints(tmp_path: Path, codec: str) -> None:
    lines = {"name": "lines", "converters": [{"type": "to_json"}], "writer": {"type": "text", "compression": codec}}
    shown = {"name": "shown", "writer": {"type": "console", "max_rows": 1}}
    job = job_spec({"a": {"rows": 25}}, fork={"branches": [lines, shown]})
    run(tmp_path, job)
    source = registry.create(ConstructKind.SOURCE, job.source, ConstructContext(job=job.job, base_dir=str(tmp_path)))
    store = project(tmp_path, job).open_store()
    audit = audit_dataset(job, source, store, "a")
    assert audit is not None
    assert (audit.published_rows, audit.lost, audit.duplicated) == ({"lines": 25}, 0, 0)
    store.close()


def test_audit_misses_no_rows_that_an_earlier_publisher_of_the_branch_brought_to_a_table(tmp_path: Path) -> None:
    table = {"type": "sql_table", "url": "sqlite:///warehouse.db", "table": "numbers"}
    branches = [{"name": "all", "publisher": table}, {"name": "files"}]
    run(tmp_path, job_spec({"a": {"rows": 25}}, fork={"branches": branches}))
    job = job_spec({"a": {"rows": 30}}, fork={"branches": [{"name": "all"}, {"name": "files"}]})
    run(tmp_path, job)
    source = registry.create(ConstructKind.SOURCE, job.source, ConstructContext(job=job.job, base_dir=str(tmp_path)))
    store = project(tmp_path, job).open_store()
    audit = audit_dataset(job, source, store, "a")
    assert audit is not None
    assert (audit.published_rows, audit.lost, audit.duplicated) == ({"all": 5, "files": 30}, 0, 0)
    store.close()
