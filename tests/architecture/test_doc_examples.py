"""What the documents show can be written: job files are without fault, commands and their options exist, Python
compiles."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import typer
import yaml
from typer.core import TyperGroup

from gobblin_dagster.cli.main import COMMANDS, load_command
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.validation import check_construct, check_parts
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.identity import IdentityCompiler
from gobblin_dagster.service.model import FlowConfig, FlowId
from gobblin_dagster.service.topology.files import read_topology
from gobblin_dagster.spec.load import load_job
from gobblin_dagster.spec.project import ProjectSpec

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
FRAME: dict[str, Any] = {
    "job": "example",
    "source": {"type": "files", "path": "in/{dataset}/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}},
    "extract": {"namespace": "n", "table": "t"},
    "output": {"path": "out"},
}
"""What a part of a job file stands in, where the part does not say it itself."""
ENVIRONMENT = {"SHOP_URL": "postgresql://reader@db.example/shop", "API_URL": "https://api.example", "BROKERS": "b:9092"}


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(language: str) -> list[Any]:
    """Return the code blocks of a language in all documents, without what they are indented by."""
    found = []
    for page in DOCUMENTS:
        text = read(page)
        parts = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
        for number, (indent, block) in enumerate(parts):
            lines = "".join(line.removeprefix(indent) for line in block.splitlines(keepends=True))
            found.append(pytest.param(lines, id=f"{page.relative_to(ROOT)}-{number}"))
    return found


def commands() -> Iterator[str]:
    """Yield what documents write as calls of `gobblin`: lines of code blocks, and code in sentences."""
    for page in DOCUMENTS:
        text = read(page)
        for _, block in re.findall(r"^( *)```(?:console)?\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                parts = line.strip().removeprefix("$ ").partition(" #")[0].split(" && ")
                yield from (part.strip() for part in parts if part.strip().startswith("gobblin "))
        prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
        yield from (re.sub(r"\s+", " ", code) for code in re.findall(r"`(gobblin [^`]+)`", prose))


@pytest.mark.parametrize("text", blocks("yaml"))
def test_job_file_is_without_fault(text: str, tmp_path: Path) -> None:
    part = yaml.safe_load(text)
    if "attributes" in part:
        return  # of Dagster's: loaded by tests/unit/orchestration/test_component.py
    if "run_monitoring" in part:
        (tmp_path / "dagster.yaml").write_text(text, encoding="utf-8")
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            assert instance.run_monitoring_enabled
        return
    if "template" in part:
        (tmp_path / "example.template").write_text(text, encoding="utf-8")
        values = {name: "Ab1" for name, one in part["parameters"].items() if "default" not in one}
        config = FlowConfig(FlowId("g", "n"), "FS:///example.template", values)
        assert IdentityCompiler(TemplateCatalog(tmp_path), ["embedded"]).compile(config).jobs
        return
    if "edges" in part or "executors" in part:
        (tmp_path / "example.yaml").write_text(text, encoding="utf-8")
        assert read_topology(tmp_path).faults == ()
        return
    if part.keys() <= ProjectSpec.model_fields.keys():
        ProjectSpec.model_validate({"project": "example", **part})
        return
    file = tmp_path / "example.yaml"
    file.write_text(yaml.safe_dump(FRAME | part), encoding="utf-8")
    job = load_job(file, check_construct, ENVIRONMENT)
    try:
        check_parts(job.spec, tmp_path)
    except UsageError as error:
        assert "No module named" in str(error)  # noqa: PT017 - the module of an example is shown beside it, not made


@pytest.mark.parametrize("text", blocks("python"))
def test_python_compiles_and_what_only_defines_can_be_imported(text: str, tmp_path: Path) -> None:
    compile(text, "example", "exec")
    defines = ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef
    if all(isinstance(node, defines) for node in ast.parse(text).body):
        (tmp_path / "example.py").write_text(text, encoding="utf-8")
        try:
            runpy.run_path(str(tmp_path / "example.py"), run_name="example")
        except ModuleNotFoundError as error:
            # A module that the same page shows; tests/e2e runs such pages.
            assert any(text in page and f"`{error.name}.py`" in page for page in map(read, DOCUMENTS))  # noqa: PT017


@pytest.mark.parametrize("call", sorted(set(commands())))
def test_command_and_its_options_exist(call: str) -> None:
    words = [*takewhile(lambda word: word not in {"|", ">", "2>"}, shlex.split(call))][1:]
    if words[0] in {"-C", "--project"}:
        words = words[2:]
    name, *rest = words
    if name.startswith("--"):
        assert name in {"--help", "--version"}
        return
    assert {*name.split("|")} <= {*COMMANDS}
    command = load_command(name.partition("|")[0])
    while rest and isinstance(command, TyperGroup) and not rest[0].startswith("-"):
        assert {*rest[0].split("|")} <= {*command.commands}
        _, command, _ = command.resolve_command(typer.Context(command), [rest.pop(0).partition("|")[0]])
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.partition("=")[0] for word in rest if word.startswith("-")}
    assert used <= known | {"--help"}


def test_commands_are_found() -> None:
    assert len(set(commands())) > 50


@pytest.mark.parametrize("name", ["iceberg", "delta", "sql_table", "kafka_topic"])
def test_every_option_of_a_publisher_to_tables_stands_on_the_page(name: str) -> None:
    page = (ROOT / "docs/reference/publishers-tables.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    options = registry.load(ConstructKind.PUBLISHER, name).Options.model_fields
    assert [option for option in options if not re.search(rf"\b{option}\b", section)] == []
