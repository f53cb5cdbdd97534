"""A source and a watermark type of the user's own, in the project folder: run, list, set."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli, write_job

OWN = """
import pyarrow as pa
from pydantic import BaseModel, ConfigDict
from gobblin_dagster.core.constructs import Chunk, DatasetOffer
from gobblin_dagster.core.work_unit import WorkUnit
from tests.unit.core import weeks

class OwnWeek(weeks.WeekWatermark):
    type_name = "own_weeks:OwnWeek"

def week(text):
    return OwnWeek(OwnWeek.position_from_json(text))

class Weeks:
    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
    def __init__(self, options, context):
        pass
    def plan(self, context):
        state = context.states.get("d")
        low, high = state.watermark if state else week("2013-W01"), week("2013-W05")
        yield DatasetOffer("d", low, high, [WorkUnit("0", "d", low, high)] if low != high else [])
    def extractor(self, unit):
        return Weeks.Rows(unit)
    def count_rows(self, urn, ranges):
        return None
    class Rows:
        bytes_read, schema = 0, pa.schema({"monday": pa.date32()})
        def __init__(self, unit):
            self.mondays = [part.low.value for part in unit.interval.partition(weeks.WEEK)]
        def chunks(self):
            batch = pa.record_batch({"monday": pa.array(self.mondays, pa.date32())})
            yield Chunk(batch, "calendar", pa.array(range(1, len(self.mondays) + 1)))
        def close(self):
            pass
"""


def gobblin(project: Path, *arguments: str) -> Any:
    """Call it in another process, which has never seen the type."""
    command = [sys.executable, "-m", "gobblin_dagster", *arguments, "-o", "json"]
    path = str(Path(__file__).parents[4])
    done = subprocess.run(
        command, cwd=project, env={"PYTHONPATH": path, "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_type_of_the_project_folder_is_known_to_runs_lists_and_people(
    cli: Cli, project: Path, inline: list[InlineRunner]
) -> None:
    (project / "own_weeks.py").write_text(OWN)
    write_job(project, {}, job="numbers", source={"type": "own_weeks:Weeks"})
    (ran,) = cli("run", "-o", "json").json()["jobs"][0]["datasets"]
    assert (ran["actual_high"], ran["rows_read"]) == ("2013-W05", 4)
    (listed,) = gobblin(project, "state", "list")["datasets"]
    assert (listed["watermark"], listed["committed"]["type"]) == ("2013-W05", "own_weeks:OwnWeek")
    moved = gobblin(project, "state", "set", "d", "2013-W03", "--reason", "snow", "--yes")
    assert moved["after"]["watermark"] == "2013-W03"
    (ran,) = cli("run", "-o", "json").json()["jobs"][0]["datasets"]
    assert (ran["low"], ran["rows_read"]) == ("2013-W03", 2)
