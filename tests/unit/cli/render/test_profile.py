from __future__ import annotations

import io

from gobblin_dagster.cli.render.console import console
from gobblin_dagster.cli.render.profile import WIDTH, print_profile
from gobblin_dagster.engine.run.profile import RunProfile


def shown(profile: RunProfile, report_s: float = 0.0) -> list[str]:
    stream = io.StringIO()
    print_profile(console(stream), "flights", profile, report_s)
    return stream.getvalue().splitlines()


def test_profile_is_a_picture_of_bars() -> None:
    lines = shown(RunProfile(1, 4, 0.5, 0.5, 1, 2, rows=1000, bytes=2_000_000, work_units=1, skew=1.25), 0.02)
    assert lines[0] == "Profile of job flights: 9.0 s"
    bars = {line.split()[0]: line.count("#") for line in lines[2:9]}
    assert bars == {"plan": 10, "start": WIDTH, "extract": 5, "convert": 5, "write": 10, "commit": 20, "report": 0}
    speed = "  1 work unit read 1,000 rows at 500 rows/s, 1.9 MB at 977 KB/s; "
    assert lines[9] == f"{speed}the slowest Spark task took 1.2 times the mean"


def test_idle_profile_has_no_speeds() -> None:
    lines = shown(RunProfile(plan_s=0.1))
    assert len(lines) == 9
    assert lines[2].endswith("#" * WIDTH)
