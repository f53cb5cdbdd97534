"""Storms for some seconds: `python -m tests.property.targets SECONDS SEED SERVERS...`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.property.targets.storm import storm
from tests.property.targets.venture import Broken
from tests.property.targets.world import world


def main(seconds: float, seed: int, *wanted: str) -> int:
    """Let storms blow for some seconds; return how many found something."""
    root, until, finds, events = Path(tempfile.mkdtemp()), time.monotonic() + seconds, 0, 0
    with world("processes", *wanted) as made:
        for number in range(seed, seed + 1_000_000):
            try:
                events += len(storm(root, made, number, 12 if "spark" in wanted else 35))
            except Broken as broken:
                finds += 1
                sys.stdout.write(f"{broken}\n")
            sys.stdout.write(f"{number + 1 - seed} storms, {events} events, {finds} finds\n")
            sys.stdout.flush()
            if time.monotonic() > until:
                return finds
    return finds


if __name__ == "__main__":
    sys.exit(bool(main(float(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])))
