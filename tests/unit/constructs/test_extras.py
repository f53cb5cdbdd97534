"""Packages that a job needs are asked of its constructs, of the schemes of its paths and of its databases' drivers."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gobblin_dagster.constructs.extras import missing_extras
from gobblin_dagster.core.utils.optional_packages import EXTRAS
from tests.unit.engine.jobs import job_spec

FILES: dict[str, Any] = {"type": "files", "path": "in/{dataset}/*", "format": "csv", "new_files": "name"}
QUERY: dict[str, Any] = {"type": "query", "tables": ["t"], "watermark": {"column": "id", "type": "long"}}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"source": {**FILES, "format": "avro"}}, {"source.format": "avro"}),
        ({"source": {**FILES, "format": {"type": "avro"}}}, {"source.format": "avro"}),
        ({"source": {**FILES, "path": "s3://b/in/{dataset}/*"}}, {"source.path": "s3"}),
        ({"source": {**FILES, "path": "sftp://me@host/in/{dataset}/*"}}, {"source.path": "sftp"}),
        ({"source": {**FILES, "path": "gs://b/in/{dataset}/*"}}, {}),
        ({"source": {**QUERY, "url": "postgresql://reader@db/shop"}}, {"source.url": "postgres"}),
        ({"source": {**QUERY, "url": "mariadb://reader@db/shop"}}, {"source.url": "mysql"}),
        ({"output": {"path": "hdfs://node/lake"}}, {"output.path": "hdfs"}),
        ({"writer": {"type": "avro"}}, {"writer": "avro"}),
        ({"writer": {"type": "org.apache.gobblin.writer.AvroDataWriterBuilder"}}, {"writer": "avro"}),
        ({"source": {"type": "kafka", "brokers": "b:9092", "topics": ["t"]}}, {"source": "kafka"}),
        # Spark reads paths with packages of its own.
        ({"source": {"type": "spark", "path": "s3://b/in", "format": "csv", "watermark": {"column": "id"}}}, {}),
        ({"commit": {"steps": [{"type": "mine:Step", "path": "s3://b"}]}}, {"commit.steps[0].path": "s3"}),
    ],
    ids=str,
)
def test_missing_package_is_told_where_the_job_file_needs_it(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], expected: dict[str, str]
) -> None:
    for module in EXTRAS:
        monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    found = missing_extras(job_spec({"a": {"rows": 1}}, **parts))
    assert {place: problem.partition("[")[2].partition("]")[0] for place, problem in found} == expected
