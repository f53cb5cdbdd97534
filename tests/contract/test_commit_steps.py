"""What every commit step promises, over all that we ship; that of Kafka's publisher is in tests/integration."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.publishers import STEP_MODULES
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.commit import CommitStep, PublishedFile
from gobblin_dagster.core.constructs import ConstructContext, DataPublisher, PublishView
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.steps import (
    DeleteFilesStep,
    MarkExpiredStep,
    Permissions,
    RenameFilesStep,
    RenameFileStep,
    SetPermissionsStep,
)
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.conformance import CommitStepConformance

CONTENT = b"three rows"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class TestRenameFileStep(CommitStepConformance):
    def prepare(self, storage: Storage) -> CommitStep:
        storage.make_dirs("/lake")
        storage.put_if_absent("/staging/f", CONTENT)
        return RenameFileStep("/staging/f", "/lake/c1-f", len(CONTENT), SHA256)


class TestRenameFilesStep(CommitStepConformance):
    def prepare(self, storage: Storage) -> CommitStep:
        storage.make_dirs("/lake/a")
        for name in ("a/1", "a/2"):
            storage.put_if_absent(f"/staging/{name}", CONTENT)
        return RenameFilesStep("/staging", "/lake", tuple((name, len(CONTENT), SHA256) for name in ("a/1", "a/2")))


class TestDeleteFilesStep(CommitStepConformance):
    def prepare(self, storage: Storage) -> CommitStep:
        for name in ("a/1", "a/2", "a/3"):
            storage.put_if_absent(f"/lake/{name}", CONTENT)
        return DeleteFilesStep("/lake", ("a/1", "a/3"))


class TestMarkExpiredStep(CommitStepConformance):
    def prepare(self, storage: Storage) -> CommitStep:
        storage.make_dirs("/lake")
        return MarkExpiredStep("/lake", "_manifests/a/0000000007.expired")


class OnDisk(CommitStepConformance):
    """Steps that need a real disk; each preparation has a folder of its own."""

    @pytest.fixture(autouse=True)
    def disk(self, tmp_path: Path) -> None:
        self.root = str(tmp_path)

    def new_storage(self) -> Storage:
        return LocalStorage(durable=False)

    def contents(self, storage: Storage) -> dict[str, bytes]:
        # A database may make its file as soon as it is asked.
        return {path: content for path, content in super().contents(storage).items() if "/lake/" in path}

    def folder(self) -> Path:
        folder = Path(self.root, uuid.uuid4().hex)
        (folder / "lake").mkdir(parents=True)
        return folder


class TestSetPermissionsStep(OnDisk):
    def prepare(self, storage: Storage) -> CommitStep:
        lake = self.folder() / "lake"
        (lake / "a").mkdir(mode=0o700)
        for name in ("a/1", "a/2"):
            (lake / name).write_bytes(CONTENT)
            (lake / name).chmod(0o600)
        return SetPermissionsStep(str(lake), ("a/1", "a/2"), Permissions(file_mode=0o640, dir_mode=0o750))


TABLES: dict[str, dict[str, Any]] = {
    "delta": {},
    "delta merge": {"mode": "merge", "key": ["id"]},
    "delta scd2": {"mode": "scd2", "key": ["id"], "delete_missing": True},
    "iceberg": {"table": "raw.rows"},
    "iceberg merge": {"table": "raw.rows", "mode": "merge", "key": ["id"]},
    "iceberg scd2": {"table": "raw.rows", "mode": "scd2", "key": ["id"], "delete_missing": True},
    "sql_table": {"url": "sqlite:///warehouse.db", "table": "rows"},
    "sql_table replace": {"url": "sqlite:///warehouse.db", "table": "rows", "mode": "replace"},
    "sql_table upsert": {"url": "sqlite:///warehouse.db", "table": "rows", "mode": "upsert", "key": ["id"]},
}
"""Options, by type."""


class TestStepsOfTables(OnDisk):
    @pytest.fixture(autouse=True, params=TABLES)
    def publisher(self, request: pytest.FixtureRequest) -> None:
        self.type, self.options = request.param.partition(" ")[0], TABLES[request.param]

    def prepare(self, storage: Storage) -> CommitStep:
        folder, options = self.folder(), dict(self.options)
        if self.type == "iceberg":
            options["catalog"] = {
                "type": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            }
        path = folder / "lake" / "rows.parquet"
        pq.write_table(pa.table({"id": [1, 2], "name": ["anna", None]}), path)
        context = ConstructContext(job="conformance", base_dir=str(folder), dataset_urn="a/b")
        spec = ConstructSpec.model_validate({"type": self.type, **options})
        publisher: DataPublisher = registry.create(ConstructKind.PUBLISHER, spec, context)
        file = PublishedFile(
            "main", str(path), path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest(), 2, 1
        )
        view = PublishView(
            job="conformance",
            run_id="run-1",
            commit_id=uuid.uuid4().hex,
            dataset_urn="a/b",
            branch="main",
            extract=Extract("raw", "rows"),
            output_root=str(folder / "lake"),
            folder=str(folder / "lake"),
            now=datetime(2026, 11, 21, 8, tzinfo=UTC),
            files=[file],
            staged={file.path: file.path},
            schema="id: int64\nname: string",
            low="0",
            high="2",
        )
        (step,) = publisher.publish(view).steps
        return step


def test_every_step_of_a_publisher_is_tested_here_or_with_its_server() -> None:
    elsewhere = {"send_to_kafka"}
    assert elsewhere < set(STEP_MODULES)
    kinds = {(name.partition(" ")[0], options.get("mode") in {"merge", "scd2"}) for name, options in TABLES.items()}
    assert len(set(STEP_MODULES) - elsewhere) == len(kinds)
