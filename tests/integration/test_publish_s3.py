"""Iceberg and Delta tables over files in S3, against a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from gobblin_dagster.core.run_record import RunStatus
from tests.services.s3 import S3Server
from tests.unit.constructs.publishers.table_jobs import ROWS, ids, table_job
from tests.unit.engine.jobs import run


def test_delta_table_lies_beside_its_files(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    root = f"s3://{s3_server.new_bucket()}/lake"
    result = run(tmp_path, table_job({"type": "delta"}, ROWS, output={"path": root}))

    assert result.status is RunStatus.SUCCEEDED, [one.failures for one in result.datasets]
    assert sorted(DeltaTable(f"{root}/test/numbers/all").to_pyarrow_table()["id"].to_pylist()) == ids(ROWS)


def test_iceberg_table_takes_files_of_a_bucket(tmp_path: Path, s3_server: S3Server) -> None:
    root = f"s3://{s3_server.new_bucket()}/lake"
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{root}-tables",
        "s3.endpoint": s3_server.url,
    }
    publisher = {"type": "iceberg", "table": "lake.numbers", "catalog": catalog}
    result = run(tmp_path, table_job(publisher, ROWS, output={"path": root}))

    assert result.status is RunStatus.SUCCEEDED, [one.failures for one in result.datasets]
    table = load_catalog("default", **catalog).load_table("lake.numbers")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ids(ROWS)
