"""Rows per second of each converter, alone, in one thread: the table of docs/reference/converters.md.

    python benchmarks/converters.py [ROWS]

A million made-up orders in batches of 20,000 rows; the best of three passes.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.spec.job import ConverterSpec

BATCH_ROWS = 20_000
PASSES = 3
CONTEXT = ConstructContext(job="bench", base_dir=".", dataset_urn="orders")
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "shop", "type": "string"}, {"name": "amount", "type": "double"}],
}


def doubled(record: dict[str, Any]) -> dict[str, Any]:
    """Work as a user's function would."""
    return {"id": record["id"], "amount": record["amount"] * 2}


def kept(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Work on a batch as a user's function would."""
    return batch.select(["id", "amount"])


CONVERTERS: list[dict[str, Any]] = [
    {"type": "add", "columns": {"run": {"source": "run_id"}, "row": {"source": "source_row"}}},
    {"type": "avro_bytes", "column": "avro", "avro_schema": AVRO | {"name": "OrderBytes"}},
    {"type": "bytes_to_text", "columns": ["avro"], "encoding": "hex"},
    {"type": "child_table", "list": "tags", "keys": ["id"]},
    {"type": "columns", "columns": {"number": "int32", "time": "timestamp"}},
    {"type": "csv_text", "column": "csv", "columns": ["a", "b", "c"]},
    {"type": "decrypt", "columns": ["sealed"], "key_env": "BENCH_AES_KEY"},
    {"type": "dedup", "by": ["customer"]},
    {"type": "drop", "columns": ["amount"]},
    {"type": "encrypt", "columns": ["customer"], "key_env": "BENCH_AES_KEY"},
    {"type": "explode", "column": "tags"},
    {"type": "filter", "column": "shop", "matches": "shop-[0-4]"},
    {"type": "flatten"},
    {"type": "function", "function": "__main__:doubled", "columns": {"id": "int64", "amount": "float64"}},
    {"type": "function", "function": "__main__:kept", "by": "batch", "columns": {"id": "int64", "amount": "float64"}},
    {"type": "hash", "columns": ["customer"], "key_env": "BENCH_KEY"},
    {"type": "json_text", "column": "json", "columns": {"shop": "string", "amount": "float64"}},
    {"type": "mask", "columns": ["customer"], "keep_last": 2},
    {"type": "parse_timestamps", "columns": {"german": ["iso", "%d.%m.%Y %H:%M"]}},
    {"type": "rename", "columns": {"amount": "price"}},
    {"type": "sample", "ratio": 0.1},
    {"type": "sample", "ratio": 0.1, "by": ["customer"]},
    {"type": "schema", "columns": {"id": "int32", "amount": "float64"}, "others": "drop"},
    {"type": "select", "columns": ["id", "address.city"]},
    {"type": "split", "column": "csv", "delimiter": ","},
    {"type": "sql", "select": "id, amount * 1.19 AS gross", "where": "amount > 10"},
    {"type": "text_to_bytes", "columns": ["csv"]},
    {"type": "to_json", "columns": ["id", "shop", "amount"]},
]
COLUMNS: dict[str, list[str]] = {
    "add": ["id", "amount"],
    "child_table": ["id", "tags"],
    "drop": ["id", "amount"],
    "rename": ["id", "amount"],
    "function": ["id", "amount"],
    "sql": ["id", "amount"],
    "flatten": ["id", "address"],
    "schema": ["id", "amount"],
    "select": ["id", "address"],
}
"""Columns that a converter gets; by default `id` and those that its options name."""


def main() -> None:
    """Print the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    os.environ["BENCH_KEY"] = "benchmark-secret-of-32-characters"
    os.environ["BENCH_AES_KEY"] = base64.b64encode(b"k" * 32).decode()
    chunks = list(_chunks(rows))
    print("| Converter | Options | Rows/s |\n| --- | --- | ---: |")
    for options in CONVERTERS:
        seconds = min(_seconds(options, chunks) for _ in range(PASSES))
        shown = ", ".join(f"{key}: {_short(value)}" for key, value in options.items() if key not in ("type", "key_env"))
        print(f"| `{options['type']}` | {shown} | {_rounded(rows / seconds):,} |", flush=True)


def _seconds(options: dict[str, Any], chunks: list[Chunk]) -> float:
    chosen = [options["column"]] if "column" in options else [*options.get("columns", ()), *options.get("by", ())]
    used = COLUMNS.get(options["type"]) or ["id", *(name for name in chosen if name != "id")]
    given = [Chunk(chunk.batch.select(used), chunk.file, chunk.rows) for chunk in chunks]
    converter = registry.create(ConstructKind.CONVERTER, ConverterSpec.model_validate(options), CONTEXT)
    converter.convert_schema(given[0].batch.schema)
    began = time.perf_counter()
    for chunk in given:
        for _ in converter.convert(chunk):
            pass
    return time.perf_counter() - began


def _chunks(rows: int) -> Iterator[Chunk]:
    random = np.random.default_rng(7)
    sealer = registry.create(
        ConstructKind.CONVERTER, ConverterSpec(type="encrypt", columns=["sealed"], key_env="BENCH_AES_KEY"), CONTEXT
    )
    schema = fastavro.parse_schema(AVRO)
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        ids = pa.array(range(start, start + count), pa.int64())
        amounts = random.uniform(1, 100, count).round(2)
        shops = pa.array([f"shop-{n}" for n in random.integers(0, 10, count)])
        customers = pa.array([f"customer-{n}" for n in random.integers(0, rows // 2, count)])
        texts = ids.cast(pa.string())
        records = [{"shop": shop, "amount": amount} for shop, amount in zip(shops.to_pylist(), amounts, strict=True)]
        batch = pa.record_batch(
            {
                "id": ids,
                "amount": pa.array(amounts),
                "shop": shops,
                "customer": customers,
                "sealed": customers,
                "number": texts,
                "time": pa.array(["2013-01-01T10:00:00Z"] * count),
                "german": pa.array(["31.01.2013 10:00"] * count),
                "csv": pc.binary_join_element_wise(texts, shops, customers, ","),
                "json": pa.array([f'{{"shop": "{r["shop"]}", "amount": {r["amount"]}}}' for r in records]),
                "avro": pa.array([_datum(schema, record) for record in records], pa.binary()),
                "tags": pa.array([["a", "b"]] * count),
                "address": pa.array([{"city": "Rome", "zip": "00118"}] * count),
            }
        )
        (chunk,) = sealer.convert(Chunk(batch, "orders", pc.add(ids, 1)))
        yield chunk


def _datum(schema: Any, record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, record)
    return stream.getvalue()


def _short(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, list | dict) else str(value)
    return f"`{text}`"


def _rounded(number: float) -> int:
    """Return a number with two digits that say something, at most the 100 million that can still be told apart."""
    number = min(number, 100_000_000)
    return round(round(number), 2 - len(str(round(number))))


if __name__ == "__main__":
    main()
