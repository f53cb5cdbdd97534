"""Show where the time of a run went, as a picture of bars."""

from __future__ import annotations

from rich.console import Console

from gobblin_dagster.cli.render.console import bytes_of, print_table
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.run.profile import RunProfile
from gobblin_dagster.engine.task.runner import is_in_spark

WIDTH = 40
"""Characters of the longest bar."""


def print_profile(console: Console, job: str, profile: RunProfile, report_s: float) -> None:
    """Print a bar per phase, and the speed; `report_s` is the time that printing the run took."""
    phases = profile.phases(report_s)
    longest = max([*phases.values(), 0.001])
    console.print(f"Profile of job {job}: {sum(phases.values()):.1f} s", style="bold")
    rows = [(f"  {name}", f"{seconds:.2f} s", _bar(seconds / longest)) for name, seconds in phases.items()]
    print_table(console, {"  phase": "left", "seconds": "right", "": "left"}, rows)
    task = "Spark task" if is_in_spark(profile.place) else "task"
    if profile.work_units:
        skew = "" if profile.skew is None else f"; the slowest {task} took {profile.skew:.1f} times the mean"
        console.print(
            f"  {count(profile.work_units, 'work unit')} read {count(profile.rows, 'row')} at "
            f"{profile.rows_per_s:,.0f} rows/s, {bytes_of(profile.bytes)} at "
            f"{bytes_of(round(profile.bytes_per_s))}/s{skew}"
        )
    if profile.place is not None:
        console.print(f"  Work ran in {profile.place}")


def _bar(share: float) -> str:
    return "#" * round(share * WIDTH)
