"""`make bench-all`: run all benchmarks one after the other, and write one page with their output and plots.

    python benchmarks/all.py [--smoke] [--dlt PYTHON] [--page .work/bench/page.html]

`--smoke` (`make bench-smoke`) runs the quick ones with little work: that they run, and that rows agree. A benchmark
whose server is not installed is named on the page with what it said, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from figures import FIGURES, load_figures, plot

HERE = Path(__file__).parent
ALL: dict[str, list[str]] = {
    "Hand-written PySpark": ["run.py"],
    "Many small datasets": ["many_datasets.py"],
    "The commit protocol": ["commit.py"],
    "PostgreSQL, one large table": ["query_source.py"],
    "PostgreSQL, many small tables": ["many_tables.py"],
    "PostgreSQL, increments of four tables": ["increments.py"],
    "Kafka": ["kafka_source.py"],
    "A dataset that remembers many files": ["remembered_files.py"],
    "Merges into Delta, Iceberg and Parquet": ["merges.py"],
    "The service": ["service.py"],
}
BESIDE_DLT = ("many_datasets.py", "increments.py")
SMOKE: dict[str, list[str]] = {
    "Many small datasets": ["many_datasets.py", "--datasets", "8", "--rows", "20", "--rounds", "1"],
    "The commit protocol": ["commit.py", "--files", "100", "--rounds", "1"],
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Benchmarks</title>
<style>body {{ font-family: sans-serif; max-width: 60rem; margin: 2rem auto }} pre {{ overflow-x: auto }}</style></head>
<body><h1>Benchmarks</h1>
<p>{when}; {machine}; load average {before:.1f} before, {after:.1f} after.</p>
{sections}
</body></html>
"""


def main() -> int:
    """Run all, write the page and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="the quick ones, with little work")
    parser.add_argument("--dlt", help="a Python that has dlt")
    parser.add_argument("--page", type=Path, default=HERE.parent / ".work" / "bench" / "page.html")
    args = parser.parse_args()
    args.page.parent.mkdir(parents=True, exist_ok=True)
    figures = args.page.with_suffix(".figures")
    figures.unlink(missing_ok=True)
    before, failed = os.getloadavg()[0], []
    sections = []
    for title, (script, *options) in (SMOKE if args.smoke else ALL).items():
        more = ["--dlt", args.dlt] if args.dlt and script in BESIDE_DLT else []
        print(f"{title} ...", flush=True)
        done = subprocess.run(
            [sys.executable, str(HERE / script), *options, *more],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, FIGURES: str(figures)},
        )
        if done.returncode:
            failed.append(title)
        print(done.stdout, flush=True)
        sections.append(f"<h2>{escape(title)}</h2>\n<pre>{escape(done.stdout)}</pre>")
    sections += [plot(title, found) for title, found in load_figures(figures)]
    page = PAGE.format(
        when=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        machine=f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}",
        before=before,
        after=os.getloadavg()[0],
        sections="\n".join(sections),
    )
    args.page.write_text(page, encoding="utf-8")
    print(f"The page is {args.page}." + (f" Failed: {', '.join(failed)}." if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
