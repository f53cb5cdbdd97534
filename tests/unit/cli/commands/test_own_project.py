"""docs/start/own-project.md, word for word: its files and commands; docs/reference/project.md: its keys."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from gobblin_dagster.spec.project import AlertsSpec, ProjectSpec, ServiceSpec, SparkSpec, WorkerSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.cli.conftest import Cli

DOCS = Path(__file__).parents[4] / "docs"
PAGE = (DOCS / "start" / "own-project.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_project_of_the_page_is_made_checked_and_run(
    cli: Cli, inline: list[InlineRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "gobblin.yaml").write_text(BLOCKS[0])
    (tmp_path / "jobs/places.yaml").write_text(BLOCKS[1])
    for folder in ("north", "south"):
        (tmp_path / "data" / folder).mkdir(parents=True)
        (tmp_path / "data" / folder / "2026-01-01.csv").write_text("id,place,amount\n1,here,1.50\n")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ gobblin (.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
    # Those that write a job over data of one's own have a test with such data: test_init.py.
    commands = [command for command in commands if not command.startswith("init ")]
    said = {command: cli(*shlex.split(command)) for command in commands}
    assert {command: called.code for command, called in said.items()} == dict.fromkeys(commands, 0)
    assert "2 committed" in said["run"].err + said["run"].out
    assert (tmp_path / "lake/shop/places/main/north").is_dir()


def test_every_key_of_the_project_file_stands_on_the_page_with_its_default() -> None:
    page = (DOCS / "reference" / "project.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| (.+?) \| ", page, re.MULTILINE)
    told = {name: default.strip("`") for keys, default in rows for name in re.findall(r"`([\w.]+)`", keys)}
    parts = ("alerts", "spark", "service", "worker")
    fields = {name: field for name, field in ProjectSpec.model_fields.items() if name not in parts}
    fields |= {f"spark.{name}": field for name, field in SparkSpec.model_fields.items()}
    fields |= {f"service.{name}": field for name, field in ServiceSpec.model_fields.items()}
    fields |= {f"worker.{name}": field for name, field in WorkerSpec.model_fields.items()}
    fields |= {f"alerts.{name}": field for name, field in AlertsSpec.model_fields.items()}
    assert told.keys() == fields.keys()
    for name, text in told.items():
        if text not in {"none", "required"}:
            default = fields[name].default
            expected = default.model_dump() if isinstance(default, BaseModel) else default
            assert yaml.safe_load(text) == (list(expected) if isinstance(expected, tuple) else expected), name
        else:
            assert fields[name].is_required() == (text == "required"), name
