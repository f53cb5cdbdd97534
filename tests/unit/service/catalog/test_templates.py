"""Templates: parameters are checked, and no value gets out of the place where it is put."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.service.catalog.templates import (
    TemplateCatalog,
    TemplateError,
    TemplateSpec,
    fill,
    job_document,
    missing_and_unknown,
)
from gobblin_dagster.spec.document import read_document

TEMPLATE = """
template: to_lake
description: a test
parameters:
  folder: {type: path, default: landing}
  least: {type: integer, default: "0"}
  city: {default: Berlin}
  column: {type: name, default: amount}
  keys: {type: list, default: "id, day"}
  mode: {choices: [a, b], default: a}
job:
  source: {type: files, path: "${folder}/{dataset}.csv", password: "${SECRET}", size: "${least}"}
  extract: {primary_keys: "${keys}"}
  converters:
    - {type: sql, where: "amount >= ${least} and city = ${city} and ${column} > 0 and price = '$$5'"}
  mode: "${mode}"
"""


@pytest.fixture
def catalog(tmp_path: Path) -> TemplateCatalog:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "to-lake.template").write_text(TEMPLATE, encoding="utf-8")
    return TemplateCatalog(tmp_path)


def test_values_are_put_in_by_type_and_place(catalog: TemplateCatalog) -> None:
    spec = catalog.load("FS:///shop/to-lake.template").spec
    values = {"folder": "in/coming", "least": "10", "city": "O'Fallon $x ${HOME}", "column": "price"}
    assert list(missing_and_unknown(spec, values)) == []
    job = fill(spec, values)
    assert job["source"] == {"type": "files", "path": "in/coming/{dataset}.csv", "password": "${SECRET}", "size": 10}
    assert job["extract"] == {"primary_keys": ["id", "day"]}
    where = job["converters"][0]["where"]
    # `$$` is what the executor reads as a `$`: no value can name a variable of its environment.
    assert where == "amount >= 10 and city = 'O''Fallon $$x $${HOME}' and \"price\" > 0 and price = '$$5'"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("folder", "../etc", "no relative path"),
        ("folder", "/etc", "no relative path"),
        ("folder", "a//b", "no relative path"),
        ("folder", "s3://b/c", "no relative path"),
        ("folder", "a/../b", "no relative path"),
        ("folder", "a/%2e%2E/b", "no relative path"),
        ("folder", "%2Fetc", "no relative path"),
        ("least", "1; drop table", "no integer"),
        ("least", "１", "no integer"),
        ("column", 'a" or 1=1', "no name"),
        ("city", "a\nb", "control character"),
        ("mode", "c", "is not one of a, b"),
    ],
)
def test_values_that_a_parameter_cannot_have_are_refused(
    catalog: TemplateCatalog, name: str, value: str, problem: str
) -> None:
    spec = catalog.load("FS:///shop/to-lake.template").spec
    (told,) = missing_and_unknown(spec, {name: value})
    assert problem in told
    assert repr(name) in told


def test_backslash_inside_of_sql_is_refused(catalog: TemplateCatalog) -> None:
    with pytest.raises(TemplateError, match="backslash"):
        fill(catalog.load("FS:///shop/to-lake.template").spec, {"city": "a\\' or 1=1 --"})


@pytest.mark.parametrize(
    "job",
    [
        {"fork": {"operator": {"type": "sql", "branches": {"eu": "city = ${x}"}}}},
        {"publisher": {"type": "delta", "mode": "merge", "delete_when": "op = ${x}"}},
        {"source": {"type": "spark", "options": {"dbTable": "(select * from t where a = ${x})"}}},
    ],
    ids=["fork", "delete_when", "jdbc"],
)
def test_value_ends_no_literal_of_any_sql(job: dict[str, Any]) -> None:
    spec = TemplateSpec.model_validate({"template": "t", "parameters": {"x": {}}, "job": job})
    assert "= 'a'' or true'" in json.dumps(fill(spec, {"x": "a' or true"}))


def test_name_of_a_table_needs_no_quotes() -> None:
    job = {"source": {"type": "spark", "options": {"dbtable": "${x}"}}}
    spec = TemplateSpec.model_validate({"template": "t", "parameters": {"x": {"type": "name"}}, "job": job})
    assert fill(spec, {"x": "orders"})["source"]["options"] == {"dbtable": "orders"}


def test_executor_reads_the_values_that_the_flow_has() -> None:
    odd = "\x80\x85\x9f\xa0\u2028\u2029\ufeff\ufffe\uffff\U0001f600\\\"'é"
    values = [*(f"a{sign}b" for sign in odd), "a \u2028 b", " a "]
    document = read_document(job_document({"values": values}, "n").encode(), None)
    assert (document.faults, document.data) == ([], {"job": "n", "values": values})


def test_parameter_without_default_must_be_set(tmp_path: Path) -> None:
    (tmp_path / "t.template").write_text(
        "template: t\nparameters: {table: {type: name, description: the table}}\njob: {x: '${table}'}\n"
    )
    spec = TemplateCatalog(tmp_path).load("FS:///t.template").spec
    assert list(missing_and_unknown(spec, {})) == ["template t needs the parameter 'table' (the table)"]


@pytest.mark.parametrize(
    "uri", ["FS:///../secret.yaml", "FS:///shop/../../secret.yaml", "FS:///%2e%2e/secret.yaml", "FS:///", "FS:///link"]
)
def test_uris_do_not_lead_out_of_the_folder(tmp_path: Path, uri: str) -> None:
    (tmp_path / "secret.yaml").write_text(TEMPLATE)
    root = tmp_path / "templates"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(TemplateError, match="outside of the folder"):
        TemplateCatalog(root).load(uri)


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("FS:///a\0.yaml", r"'FS:///a\\x00.yaml' is no URI of a template: embedded null"),
        ("FS:///a%00.yaml", "is no URI of a template: embedded null"),
        ("FS://[/a.yaml", "is no URI of a template: Invalid IPv6 URL"),
        ("FS:///round.yaml", "is no URI of a template|cannot be read"),
        ("FS:///pipe.yaml", "is no file"),
        ("FS:///folder", "is no file"),
    ],
)
def test_uri_that_names_no_file_is_refused(tmp_path: Path, uri: str, problem: str) -> None:
    (tmp_path / "round.yaml").symlink_to(tmp_path / "round.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TemplateError, match=problem):
        TemplateCatalog(tmp_path).load(uri)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "template"),
        ("template: t\njob: {job: x}\n", "is set by the service"),
        ("template: t\nparameters: {a: {}}\njob: {x: 1}\n", "is used nowhere"),
        ("template: t\nparameters: {a: {pattern: '('}}\njob: {x: '${a}'}\n", "no regular expression"),
        (
            "template: t\nparameters: {a: {type: integer, default: x}}\njob: {x: '${a}'}\n",
            "has a default that is no integer",
        ),
        ("template: t\nparameters: {a: {typo: 1}}\njob: {x: '${a}'}\n", "typo"),
        ("template: '1 2'\njob: {}\n", "template"),
        ("a: [", "YAML"),
    ],
)
def test_templates_with_faults_name_the_file_and_the_place(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "t.template").write_text(text)
    with pytest.raises(TemplateError) as caught:
        TemplateCatalog(tmp_path).load("FS:///t.template")
    assert "FS:///t.template" in str(caught.value)
    assert problem in str(caught.value)


def test_template_that_does_not_exist_names_those_that_do(catalog: TemplateCatalog) -> None:
    with pytest.raises(TemplateError, match=r"templates: FS:///shop/to-lake\.template"):
        catalog.load("FS:///nope.template")


def test_changed_template_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t.template"
    path.write_text("template: one\njob: {x: 1}\n")
    catalog = TemplateCatalog(tmp_path)
    assert catalog.load("FS:///t.template").spec.template == "one"
    path.write_text("template: second\njob: {x: 1}\n")
    assert catalog.load("FS:///t.template").spec.template == "second"
