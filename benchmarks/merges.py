"""Merges into Delta, Iceberg and Parquet snapshots beside what their own libraries offer: seconds, and the ratio.

Each side gets a copy of the same table of 20 files, and merges the same rows into it in turns. Delta: deltalake's
`merge`, by hand. Iceberg: pyiceberg's `upsert`. Parquet: read all, join and write all again by pyarrow. The libraries
look for no doubled keys, order nothing and remember no commit. Run it with
`python -m benchmarks.merges [--rows 2000000] [--turns 3]`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.constructs import ConstructContext, DataPublisher, PublishView, WriterContext
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.storage import LocalStorage

FILES, KINDS = 20, ("delta", "iceberg", "parquet")
STORAGE = LocalStorage()


def rows_of(ids: np.ndarray[Any, Any], salt: str) -> pa.Table:
    """Return rows with an id, a text, a number and a time."""
    texts = pc.binary_join_element_wise(pa.array(ids).cast(pa.string()), salt, "-")
    times = pa.array(ids * 1_000_000).cast(pa.timestamp("us", "UTC"))
    return pa.table({"id": ids, "name": texts, "amount": ids * 1.5, "at": times})


class Table:
    """One table with its rows, in a folder of its own."""

    def __init__(self, kind: str, folder: Path, rows: int) -> None:
        self.kind, self.folder = kind, folder
        self.home = folder / "lake/bench/rows/all/c"
        self.home.mkdir(parents=True)
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        for part in np.array_split(np.arange(rows), FILES):
            self.append(rows_of(part, "old"))

    def iceberg(self) -> Any:
        """Return the Iceberg table."""
        return load_catalog("default", **self.catalog).load_table("bench.rows")

    def append(self, rows: pa.Table) -> None:
        """Add a file."""
        if self.kind == "delta":
            write_deltalake(self.home.parent, rows, mode="append")
        elif self.kind == "iceberg":
            catalog = load_catalog("default", **self.catalog)
            catalog.create_namespace_if_not_exists("bench")
            catalog.create_table_if_not_exists("bench.rows", schema=rows.schema).append(rows)
        else:
            pq.write_table(rows, self.home / f"{uuid.uuid4().hex}.parquet")

    def ours(self, rows: pa.Table) -> None:
        """Merge as the publisher does."""
        commit = uuid.uuid4().hex
        staged = self.folder / f"{commit}.parquet"
        pq.write_table(rows, staged)
        target = f"{self.home}/{commit}.parquet"
        options: dict[str, Any] = {"type": self.kind, "mode": "merge", "key": ["id"]}
        if self.kind == "iceberg":
            options |= {"table": "bench.rows", "catalog": self.catalog}
        elif self.kind == "parquet":
            options = {"type": "merge", "key": ["id"]}
        spec = ConstructSpec.model_validate(options)
        context = ConstructContext(job="bench", base_dir=str(self.folder), dataset_urn="c", branch="all")
        publisher: DataPublisher = registry.create(ConstructKind.PUBLISHER, spec, context)
        view = PublishView(
            job="bench",
            run_id="run-1",
            commit_id=commit,
            dataset_urn="c",
            branch="all",
            extract=Extract("bench", "rows"),
            output_root=f"{self.folder}/lake",
            folder=str(self.home),
            now=datetime.now(UTC),
            files=[PublishedFile("all", target, staged.stat().st_size, "ab" * 32, rows.num_rows, 1)],
            staged={target: str(staged)},
            current=[PublishedFile("all", str(path), 1, "ab" * 32, 1, 1) for path in self.home.glob("*.parquet")],
        )
        if self.kind != "parquet":
            for step in publisher.publish(view).steps:
                step.execute(STORAGE)
            return
        rewrite: Callable[..., Any] = publisher.rewrite  # type: ignore[attr-defined]  # it has this addition
        where = WriterContext(
            STORAGE, str(self.folder), "bench/rows/all/c", f"{commit}-merged", "all", "c", rows.schema
        )
        done = rewrite(view, lambda _: ParquetWriter(ParquetWriter.Options(), context, writer_context=where))
        for file in done.staged if done else ():
            shutil.move(file.path, f"{self.folder}/lake/{file.target}")
        for path in done.removed if done else ():
            Path(path).unlink()
        if done is None:
            shutil.move(staged, target)

    def peers(self, rows: pa.Table) -> None:
        """Merge as the library of the format does."""
        if self.kind == "delta":
            merge = DeltaTable(self.home.parent).merge(rows, "old.id = new.id", "new", "old")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        elif self.kind == "iceberg":
            self.iceberg().upsert(rows, join_cols=["id"])
        else:
            old = pq.read_table(self.home)
            kept = old.filter(pc.invert(pc.is_in(old["id"], rows["id"])))
            for path in self.home.glob("*.parquet"):
                path.unlink()
            pq.write_table(pa.concat_tables([kept, rows]), self.home / f"{uuid.uuid4().hex}.parquet")

    def count(self) -> int:
        """Return the number of rows."""
        if self.kind == "delta":
            return int(DeltaTable(self.home.parent).count())
        if self.kind == "iceberg":
            return int(self.iceberg().scan().count())
        return sum(pq.read_metadata(path).num_rows for path in self.home.glob("*.parquet"))


def changes(rows: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return the ids of the changes, by name."""
    return {
        "1,000 in one file": np.arange(1_000),
        "1,000 new ones": np.arange(rows, rows + 1_000),
        f"{rows // 200:,}, some in each file": np.arange(0, rows, 200),
    }


def main() -> None:
    """Run all merges and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    print(f"{args.rows:,} rows in {FILES} files; load average {os.getloadavg()[0]:.1f}")
    print("| merged rows | table | ours | the library's | ratio |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            tables = {name: Table(kind, Path(folder, kind, name), args.rows) for name in ("ours", "peers")}
            for what, ids in changes(args.rows).items():
                times: dict[str, list[float]] = {name: [] for name in tables}
                for turn in range(args.turns):
                    # New rows must be new in each turn.
                    merged = rows_of(ids + (turn * 1_000 if "new" in what else 0), f"turn {turn}")
                    for name, table in tables.items():
                        began = time.perf_counter()
                        getattr(table, name)(merged)
                        times[name].append(time.perf_counter() - began)
                counts = {table.count() for table in tables.values()}
                if len(counts) > 1:
                    raise SystemExit(f"{kind}, {what}: the tables differ: {counts}")
                ours, peer = (statistics.median(times[name]) for name in ("ours", "peers"))
                print(f"| {what} | {kind} | {ours:.2f} s | {peer:.2f} s | {peer / ours:.1f}x |", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
