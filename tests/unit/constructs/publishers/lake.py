"""A Delta or Iceberg table on disk, and publications to it that need no job."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.commit import CommitStep, PublishedFile
from gobblin_dagster.core.constructs import ConstructContext, PublishView
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.engine.commit.steps import step_from_json, step_to_json
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.storage import LocalStorage

STORAGE = LocalStorage(durable=False)
T0 = datetime(2026, 11, 21, 8, tzinfo=UTC)


class Lake:
    """One table of a format, and merges into it that need no job."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind, self.root = kind, root
        catalog = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}
        self.options: dict[str, Any] = {"mode": "merge"}
        if kind == "iceberg":
            self.options |= {"table": "lake.numbers", "catalog": catalog}
        self._catalog = catalog
        self.now = T0

    @property
    def publisher(self) -> dict[str, Any]:
        return {"type": self.kind, **self.options}

    def step(
        self,
        *files: pa.Table,
        by: tuple[str, ...] = (),
        folder: str = "",
        in_place: bool = False,
        branch: str = "all",
        joins: bool = False,
        left_out: int = 0,
        **options: Any,
    ) -> CommitStep:
        """Return the step that publishes the files, as a commit sequence stores it."""
        spec = ConstructSpec.model_validate({"type": self.kind, **self.options, "key": ["id"], **options})
        context = ConstructContext(job="numbers", base_dir=str(self.root), dataset_urn="c", branch=branch)
        commit, home = uuid.uuid4().hex, self.root / "lake/test/numbers/all"
        home.mkdir(parents=True, exist_ok=True)
        published, staged = [], {}
        for number, rows in enumerate(files):
            target = f"{home}/c/{folder}{commit}-{number}.parquet"
            path = Path(target) if in_place else self.root / f"{commit}-{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, path)
            published.append(PublishedFile("all", target, path.stat().st_size, "ab" * 32, rows.num_rows, 1))
            staged[target] = str(path)
        self.now += timedelta(seconds=1)
        view = PublishView(
            job="numbers",
            run_id="run-1",
            commit_id=commit,
            dataset_urn="c",
            branch=branch,
            joins=joins,
            rows_left_out=left_out,
            extract=Extract("test", "numbers", delta_fields=by),
            output_root=f"{self.root}/lake",
            folder=f"{home}/c",
            now=self.now,
            files=published,
            staged=staged,
        )
        (step,) = registry.create(ConstructKind.PUBLISHER, spec, context).publish(view).steps
        return step_from_json(step_to_json(step))

    def merge(self, *files: pa.Table, **how: Any) -> None:
        step = self.step(*files, **how)
        assert not step.verify(STORAGE)
        step.execute(STORAGE)
        assert step.verify(STORAGE)

    def append(self, *files: pa.Table) -> None:
        """Add files as they are, as a publisher with `mode: append` does."""
        self.step(*files, mode="append", key=[], in_place=True).execute(STORAGE)

    def rows(self) -> list[dict[str, Any]]:
        """Return the table's rows, by id if they have one."""
        if self.kind == "delta":
            found = DeltaTable(f"{self.root}/lake/test/numbers/all").to_pyarrow_table()
        else:
            found = self.iceberg().scan().to_arrow()
        return sorted(found.to_pylist(), key=lambda row: str(row.get("id")).zfill(9))

    def files(self) -> set[str]:
        if self.kind == "delta":
            return set(DeltaTable(f"{self.root}/lake/test/numbers/all").file_uris())
        return {task.file.file_path for task in self.iceberg().scan().plan_files()}

    def iceberg(self) -> Any:
        return load_catalog("default", **self._catalog).load_table("lake.numbers")


def rows(*values: tuple[Any, ...], names: str = "id v") -> pa.Table:
    return pa.table(dict(zip(names.split(), map(list, zip(*values, strict=True)), strict=True)))
