"""The side of dlt in `many_datasets.py`: run it by a Python that has dlt, in an empty folder; it takes the files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCE_TABLES = 200


def main(files: Path) -> None:
    """Load each file into a table of its own, as Parquet below `lake`."""
    import dlt  # type: ignore[import-not-found]  # noqa: PLC0415  # not a package of this project
    import pyarrow.csv as pacsv  # noqa: PLC0415  # belongs to the other Python

    def rows(file: Path) -> Iterator[Any]:
        yield pacsv.read_csv(file)

    here = Path.cwd()
    pipeline = dlt.pipeline(
        "many",
        destination=dlt.destinations.filesystem(f"file://{here}/lake"),
        dataset_name="bench",
        pipelines_dir=str(here / "pipelines"),
    )
    found = sorted(files.glob("*/*.csv"))
    for first in range(0, len(found), SOURCE_TABLES):
        part = found[first : first + SOURCE_TABLES]
        resources = [dlt.resource(rows(file), name=file.parent.name, write_disposition="append") for file in part]
        pipeline.run(resources, loader_file_format="parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
