"""The side of dlt in `increments.py`: run it by a Python that has dlt, in a folder of its own.

It takes the name of the variable that holds the database's URL.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(variable: str) -> None:
    """Append the new rows of each table, as Parquet below `lake`."""
    import dlt  # type: ignore[import-not-found]  # noqa: PLC0415  # not a package of this project
    from dlt.sources.sql_database import sql_database  # type: ignore[import-not-found]  # noqa: PLC0415  # as above

    here = Path.cwd()
    pipeline = dlt.pipeline(
        "four",
        destination=dlt.destinations.filesystem(f"file://{here}/lake"),
        dataset_name="bench",
        pipelines_dir=str(here / "pipelines"),
    )
    url = os.environ[variable].replace("postgresql://", "postgresql+psycopg2://")
    source = sql_database(url, schema="public", backend="pyarrow", chunk_size=50_000)
    for resource in source.resources.values():
        resource.apply_hints(incremental=dlt.sources.incremental("id"), write_disposition="append")
    pipeline.run(source, loader_file_format="parquet")


if __name__ == "__main__":
    main(sys.argv[1])
