"""The identity compiler: the same jobs each time, names that no two flows share, all reasons at once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.identity import IdentityCompiler
from gobblin_dagster.service.compiler.jobs import job_name
from gobblin_dagster.service.model import FlowConfig, FlowId
from gobblin_dagster.spec.job import NAME_PATTERN, JobSpec

TEMPLATE = """
template: {name}
parameters:
  table: {{type: name}}
  where: {{default: "landing"}}
job:
  source: {{type: files, path: "${{where}}/{{dataset}}/{{date:%Y}}.csv", format: {{type: csv}}}}
  extract: {{namespace: test, table: "${{table}}"}}
  output: {{path: "lake/{name}"}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / f"{name}.template").write_text(TEMPLATE.format(name=name))
    return tmp_path


def flow(templates: str = "FS:///one.template", **properties: str) -> FlowConfig:
    return FlowConfig(FlowId("g", "n"), templates, properties)


def test_each_template_becomes_a_job_after_the_one_before(root: Path) -> None:
    compiler = IdentityCompiler(TemplateCatalog(root), ["embedded"])
    config = flow(
        "FS:///one.template, FS:///two.template", table="t", **{"job.maxAttempts": "3", "user.to.proxy": "me"}
    )
    dag = compiler.compile(config)
    assert [(job.name, job.parents, job.max_attempts) for job in dag.jobs] == [
        ("g__n__one", (), 3),
        ("g__n__two", ("g__n__one",), 3),
    ]
    assert compiler.compile(config) == dag, "byte for byte"
    assert JobSpec.model_validate(json.loads(dag.jobs[0].body)).job == "g__n__one"


def test_all_reasons_are_told_at_once(root: Path) -> None:
    compiler = IdentityCompiler(TemplateCatalog(root), ["embedded"])
    with pytest.raises(FlowCompileError) as caught:
        compiler.compile(flow(typo="x", where="a\tb"))
    text = str(caught.value)
    for told in ("needs the parameter 'table'", "declares the parameter 'typo'", "control character"):
        assert told in text


def test_two_templates_of_one_name_are_refused(root: Path) -> None:
    with pytest.raises(FlowCompileError, match="two templates are named 'one'"):
        IdentityCompiler(TemplateCatalog(root), ["embedded"]).compile(
            flow("FS:///one.template,FS:///one.template", table="t")
        )


def test_service_without_executors_compiles_nothing(root: Path) -> None:
    with pytest.raises(FlowCompileError, match="no executor can run jobs"):
        IdentityCompiler(TemplateCatalog(root), []).compile(flow(table="t"))


def test_secret_in_a_flow_is_refused_and_a_reference_of_the_template_is_not(root: Path) -> None:
    (root / "db.template").write_text(
        "template: db\nparameters: {password: {default: '${DB_PASSWORD}'}, table: {type: name}}\n"
        "job:\n  source: {type: query, url: 'postgresql://me:${password}@db/shop', tables: ['*'],\n"
        "    watermark: {column: id}}\n"
        "  extract: {namespace: test, table: '${table}'}\n  output: {path: lake}\n"
    )
    compiler = IdentityCompiler(TemplateCatalog(root), ["embedded"])
    with pytest.raises(FlowCompileError) as caught:
        compiler.compile(flow("FS:///db.template", table="t", password="hunter2-secret"))
    assert "hunter2" not in str(caught.value)
    (job,) = compiler.compile(flow("FS:///db.template", table="t")).jobs
    assert json.loads(job.body)["source"]["url"] == "postgresql://me:${DB_PASSWORD}@db/shop"


def test_modules_outside_of_the_projects_list_are_refused_without_being_imported(root: Path) -> None:
    (root / "own.template").write_text(
        "template: own\nparameters: {table: {type: name}}\n"
        "job:\n  source: {type: 'antigravity:Source'}\n  extract: {namespace: test, table: '${table}'}\n"
        "  output: {path: lake}\n"
    )
    compiler = IdentityCompiler(TemplateCatalog(root), ["embedded"], AllowLists(modules=("shop",)))
    with pytest.raises(FlowCompileError, match="antigravity"):
        compiler.compile(flow("FS:///own.template", table="t"))
    import sys

    assert "antigravity" not in sys.modules


_PART = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@given(one=st.tuples(_PART, _PART, _PART), two=st.tuples(_PART, _PART, _PART))
def test_jobs_of_two_flows_never_have_one_name(one: tuple[str, str, str], two: tuple[str, str, str]) -> None:
    names = [job_name(FlowId(group, name), template) for group, name, template in (one, two)]
    assert (names[0] == names[1]) == (one == two)
    for name in names:
        assert name.isascii()
        assert name.replace("_", "").isalnum()
        assert name[0].isalpha()
        assert re.fullmatch(NAME_PATTERN, name)


@pytest.mark.parametrize(
    ("one", "two"), [(("a_b", "c", "t"), ("a", "b_c", "t")), (("a__b", "c", "t"), ("a", "b__c", "t"))]
)
def test_underscores_do_not_let_names_meet(one: tuple[str, str, str], two: tuple[str, str, str]) -> None:
    assert job_name(FlowId(*one[:2]), one[2]) != job_name(FlowId(*two[:2]), two[2])
