"""Jobs in a Dagster components project: from a project folder, by name, from a job file, written inline; and its
faults."""

from __future__ import annotations

import re
import runpy
import traceback
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import DefsFolderSandbox, create_defs_folder_sandbox

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.orchestration import BranchData, GobblinJobComponent

JOB = """\
job: numbers
source: {type: "gobblin_dagster.testing.rows_source:RowsSource", datasets: {a: {rows: 3}}}
extract: {namespace: test, table: numbers}
output: {path: lake}
"""
DOCS = Path(__file__).parents[3] / "docs"
TYPE = "type: gobblin_dagster.orchestration.GobblinJobComponent\n"


def inline(job: str) -> str:
    return TYPE + "attributes:\n  job:\n" + "".join(f"    {line}\n" for line in job.splitlines())


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "gobblin.yaml").write_text("project: lakes\n")
    (tmp_path / "jobs" / "numbers.yaml").write_text(JOB)
    (tmp_path / "jobs" / "letters.yaml").write_text(JOB.replace("numbers", "letters"))
    return tmp_path


def load(sandbox: DefsFolderSandbox, text: str) -> dg.Definitions:
    folder = sandbox.defs_folder_path / "ingest"
    folder.mkdir()
    (folder / "defs.yaml").write_text(text)
    with sandbox.build_all_defs() as defs:
        return defs


def error(sandbox: DefsFolderSandbox, text: str) -> str:
    """Return what Dagster shows of a component that cannot be loaded: its error and all that led to it."""
    with pytest.raises(Exception, match=r"Error while (loading component|building definitions)") as caught:
        load(sandbox, text)
    return "".join(traceback.format_exception(caught.value))


def names(defs: dg.Definitions) -> list[str]:
    return sorted(key.to_user_string() for key in defs.resolve_all_asset_keys())


def test_project_folder_gives_all_its_jobs_with_their_sensors(sandbox: DefsFolderSandbox, project: Path) -> None:
    defs = load(sandbox, TYPE + f"attributes: {{project: {project}}}\n")
    assert names(defs) == ["test/letters/main", "test/numbers/main"]
    assert {sensor.name for sensor in defs.sensors or ()} == {"lakes_new_data", "lakes_sweep"}
    assert {"letters_job", "numbers_job"} <= set(defs.get_repository_def().job_names)
    assert defs.resolve_job_def("numbers_job")


def test_project_folder_is_relative_to_the_yaml_file(sandbox: DefsFolderSandbox, project: Path) -> None:
    target = sandbox.defs_folder_path.parent / "lakes"
    project.rename(target)
    assert len(names(load(sandbox, TYPE + "attributes: {project: ../../lakes}\n"))) == 2


def test_examples_of_the_page_are_loaded(sandbox: DefsFolderSandbox, tmp_path: Path) -> None:
    page = (DOCS / "reference" / "dagster.md").read_text(encoding="utf-8")
    own = (DOCS / "start" / "own-project.md").read_text(encoding="utf-8")
    program, *_ = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    component, *parts = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    folder = sandbox.defs_folder_path.parent / "lakehouse"
    (folder / "jobs").mkdir(parents=True)
    shown = re.findall(r"^```yaml\n(.*?)^```$", own, re.MULTILINE | re.DOTALL)
    for path, text in zip(
        ("gobblin.yaml", "jobs/places.yaml", "definitions.py"),
        [shown[0], shown[1] + "".join(parts), program],
        strict=True,
    ):
        (folder / path).write_text(text)
    assert names(load(sandbox, component)) == ["exports/orders", "shop/places/main"]
    defs = runpy.run_path(str(folder / "definitions.py"))["defs"]
    assert names(defs) == ["exports/orders", "shop/places/main", "totals"]


def test_name_chooses_one_job(sandbox: DefsFolderSandbox, project: Path) -> None:
    assert names(load(sandbox, TYPE + f"attributes: {{project: {project}, job: letters}}\n")) == ["test/letters/main"]


def test_job_file_needs_no_project(sandbox: DefsFolderSandbox, project: Path) -> None:
    file = project / "jobs" / "numbers.yaml"
    assert names(load(sandbox, TYPE + f"attributes: {{job: {file}}}\n")) == ["test/numbers/main"]


def test_job_file_of_gobblins_takes_the_classes_and_common_keys_of_its_project(
    sandbox: DefsFolderSandbox, project: Path
) -> None:
    source = "{type: 'gobblin_dagster.testing.rows_source:RowsSource', datasets: {a: {rows: 5}}}"
    with (project / "gobblin.yaml").open("a") as file:
        file.write(f"classes:\n  com.shop.Numbers: {source}\n")
    (project / "jobs" / "common.properties").write_text("extract.namespace=shop\ndata.publisher.final.dir=lake\n")
    path = project / "jobs" / "old.pull"
    path.write_text("job.name=old\nsource.class=com.shop.Numbers\n")
    assert names(load(sandbox, TYPE + f"attributes: {{project: {project}, job: {path}}}\n")) == ["shop/old/main"]


@pytest.mark.parametrize("is_inline", [True, False], ids=["inline", "file"])
def test_job_names_only_what_its_project_allows(sandbox: DefsFolderSandbox, project: Path, is_inline: bool) -> None:
    with (project / "gobblin.yaml").open("a") as file:
        file.write("allow: {paths: [in]}\n")
    for job in (project / "jobs").iterdir():
        job.unlink()
    (project / "numbers.yaml").write_text(JOB)
    text = inline(JOB) if is_inline else TYPE + f"attributes:\n  job: {project / 'numbers.yaml'}\n"
    assert "output.path: the path 'lake' is below none of `allow.paths`" in error(
        sandbox, text + f"  project: {project}\n"
    )


def test_inline_job_imports_no_module_that_its_project_does_not_allow(
    sandbox: DefsFolderSandbox, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (project / "gobblin.yaml").open("a") as file:
        file.write("allow: {modules: []}\n")
    (project / "not_allowed.py").write_text(f"open({str(project / 'imported')!r}, 'w')\n")
    monkeypatch.syspath_prepend(project)
    text = JOB + "converters: [{type: 'not_allowed:Converter'}]\n"
    message = error(sandbox, inline(text) + f"  project: {project}\n")
    assert "converters[0].type: the module of 'not_allowed:Converter' is not in `allow.modules`" in message
    assert not (project / "imported").exists()


def test_inline_job_is_a_job(sandbox: DefsFolderSandbox) -> None:
    assert names(load(sandbox, inline(JOB))) == ["test/numbers/main"]


@pytest.mark.parametrize(
    ("more", "checks"),
    [("", 1), ("  checks: false\n", 0), ("  checks: failures\n", 1)],
    ids=["default", "left-out", "failures"],
)
def test_checks_are_left_out_where_the_yaml_says_so(sandbox: DefsFolderSandbox, more: str, checks: int) -> None:
    text = inline(JOB + "task_policies: [{type: row_count}]\n") + more
    assert len(load(sandbox, text).resolve_asset_graph().asset_check_keys) == checks


def test_inline_job_takes_templates_and_leaves_other_text_alone(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLE", "from_env")
    text = JOB.replace("table: numbers", "table: '{{ env.TABLE }}'") + 'description: "08"\n'
    defs = load(sandbox, inline(text))
    (key,) = defs.resolve_all_asset_keys()
    assert key.path == ["test", "from_env", "main"]
    assert defs.resolve_asset_graph().get(key).description == "08"


def test_inline_job_faults_are_reported_together_with_their_lines(sandbox: DefsFolderSandbox) -> None:
    text = JOB.replace("rows: 3", "rows: many").replace("output: {path", "outputs: {path")
    message = error(sandbox, inline(text))
    assert "defs.yaml has 3 faults" in message
    assert "defs.yaml:5: job.source.datasets.a.rows: " in message
    assert "defs.yaml:7: job.outputs: unknown key; did you mean 'output'?" in message


def test_inline_job_takes_and_refuses_what_a_job_file_does(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("URL", "postgresql://reader:hunter2@h/shop")
    text = JOB + "converters: [{type: drop, columns: [id], name: lean, on_error: skip, max_errors: 3}]\ndescription: "
    assert names(load(sandbox, inline(text + "'of {{ env.URL }}'"))) == ["test/numbers/main"]
    with create_defs_folder_sandbox() as another:
        message = error(another, inline(text + "of postgresql://reader:hunter2@h/shop"))
    assert "defs.yaml:9: job.description: must not hold a password; take it from the environment" in message


def test_unknown_attribute_is_refused_with_its_line(sandbox: DefsFolderSandbox) -> None:
    assert "folders at " in error(sandbox, TYPE + "attributes: {folders: x}\n")


def test_unknown_job_names_those_that_exist(sandbox: DefsFolderSandbox, project: Path) -> None:
    with pytest.raises(UsageError, match=r"No job 'digits'.*letters, numbers"):
        GobblinJobComponent(project=project, job="digits").build_defs(dg.ComponentTree.for_test().load_context)


def test_component_is_found_through_its_entry_point() -> None:
    from importlib.metadata import entry_points

    (point,) = (p for p in entry_points(group="dagster_dg_cli.registry_modules") if p.name == "gobblin_dagster")
    assert point.load().GobblinJobComponent is GobblinJobComponent


def test_subclass_says_how_branches_look(project: Path) -> None:
    class Ours(GobblinJobComponent):
        def get_asset_spec(self, data: BranchData) -> dg.AssetSpec:
            return super().get_asset_spec(data).replace_attributes(key=["ours", data.branch.name])

    defs = Ours(project=project, job="numbers").build_defs(dg.ComponentTree.for_test().load_context)
    assert names(defs) == ["ours/main"]


def test_value_of_a_variable_in_an_inline_job_is_hidden(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "kanarienvogel-7391")
    defs = load(sandbox, inline(JOB + "description: 'with {{ env.TOKEN }}'\n"))
    (key,) = defs.resolve_all_asset_keys()
    assert defs.resolve_asset_graph().get(key).description == "with ${TOKEN}"
    assert hidden("said kanarienvogel-7391") == "said ${TOKEN}"
