"""The other side: the same in PySpark, as one writes it by hand. Serves targets as `ours.py` does.

python benchmarks/handwritten.py fork <folder of flights>
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from data import columns
from pyspark.sql import SparkSession


def main(scenario: str, flights: Path) -> None:
    """Write the outputs for each target folder that is asked for."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{os.cpu_count()}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    # A declared schema: inferring one would read everything once more.
    schema = ", ".join(f"{name} {kind.replace('int32', 'int')}" for name, kind in columns().items())
    for line in sys.stdin:
        target = line.strip()
        frame = spark.read.csv(f"{flights}/*/*.csv", header=True, schema=schema, nullValue="NA")
        frame.write.parquet(f"{target}/all")
        if scenario == "fork":
            frame.drop("tailnum").write.parquet(f"{target}/masked")
        print("done", flush=True)


def published(target: Path) -> dict[str, list[str]]:
    """Return the written files by output."""
    return {folder.name: [str(file) for file in folder.glob("*.parquet")] for folder in target.iterdir()}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
