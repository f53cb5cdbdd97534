"""Small work: the demo's next day, an idle run and a plan, each with a process of its own and in a warm worker.

    python benchmarks/small_runs.py [--rounds 3]

Each round makes the demo anew for each side and publishes its first seven days; measured are then two more days (about
430 rows in 6 datasets each), an idle run and a plan, as whole commands. The sides take turns; medians are printed, with
the load average before and after. The rows of both sides must agree.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pyarrow.dataset as ds

GOBBLIN = [sys.executable, "-m", "gobblin_dagster"]


def call(root: Path, *arguments: str) -> float:
    """Run a command in a project, and return its seconds."""
    began = time.monotonic()
    subprocess.run([*GOBBLIN, *arguments], cwd=root, check=True, capture_output=True)
    return time.monotonic() - began


def measure(root: Path, is_warm: bool) -> dict[str, list[float]]:
    """Return the seconds of each kind of command."""
    call(root.parent, "init", root.name)
    if is_warm:
        project = root / "gobblin.yaml"
        project.write_text(project.read_text().replace("spark:\n", "spark:\n  keep_warm: 5m\n"))
    found: dict[str, list[float]] = defaultdict(list)
    found["first run"].append(call(root, "run"))
    try:
        for _ in range(2):
            subprocess.run([sys.executable, "-m", "gobblin_dagster.demo", "add-day", str(root)], check=True)
            found["next day"].append(call(root, "run"))
        for _ in range(3):
            found["idle run"].append(call(root, "run"))
            found["plan"].append(call(root, "plan"))
    finally:
        if is_warm:
            call(root, "worker", "stop")
    return found


def rows(root: Path) -> list[str]:
    """Return the published rows of a project."""
    lake = root / "lake" / "nyc" / "flights"
    return sorted(str(row) for name in ("all", "masked") for row in ds.dataset(lake / name).to_table().to_pylist())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    seconds: dict[bool, dict[str, list[float]]] = {side: defaultdict(list) for side in (False, True)}
    before = os.getloadavg()[0]
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            roots = {side: Path(folder, "warm" if side else "cold") for side in seconds}
            for is_warm, root in roots.items():
                for name, values in measure(root, is_warm).items():
                    seconds[is_warm][name] += values
            if rows(roots[False]) != rows(roots[True]):
                raise SystemExit("The rows of both sides differ.")
    print(f"{'':10} {'own process':>12} {'warm worker':>12}   medians, same rows")
    for name in seconds[False]:
        cold, warm = (statistics.median(seconds[side][name]) for side in (False, True))
        print(f"{name:10} {cold:10.2f} s {warm:10.2f} s")
    print(f"load average {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
