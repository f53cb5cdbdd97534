"""Gobblin's own template files as templates of flows: what they ask for, inherit, and become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.service.catalog.templates import TemplateCatalog, TemplateError
from gobblin_dagster.service.compiler.identity import IdentityCompiler
from gobblin_dagster.service.model import FlowConfig, FlowId

BASE = """
# What all templates of the shop have in common.
extract.namespace = shop
data.publisher.final.dir = "lake"
writer.output.format = PARQUET
gobblin.template.required_attributes = "extract.table.name"
"""
QUERY = """
gobblin.template.inherit = "resource:///shop/base.template"
gobblin.template.required_attributes = "where.column,limit"
job.name = "ignored"
limit = 100
source.class = org.apache.gobblin.source.extractor.extract.jdbc.PostgresqlSource
source.conn.host = localhost
source.conn.port = 5432
source.conn.username = reader
source.conn.password = ${SHOP_PASSWORD}
source.querybased.schema = shop
source.querybased.query = "SELECT * FROM "${extract.table.name}" WHERE "${where.column}" > "${limit}
extract.delta.fields = ${where.column}
source.querybased.watermark.type = simple
"""
KAFKA = """
gobblin.template.uri=FS:///shop/base.template
source.class=org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource
kafka.brokers=${brokers}
topic.whitelist=${topics}
bootstrap.with.offset=earliest
"""


@pytest.fixture
def catalog(tmp_path: Path) -> TemplateCatalog:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "base.template").write_text(BASE)
    (tmp_path / "shop" / "query.template").write_text(QUERY)
    (tmp_path / "shop" / "topics.job").write_text(KAFKA)
    return TemplateCatalog(tmp_path)


def compiled(catalog: TemplateCatalog, uri: str, **properties: str) -> dict[str, Any]:
    config = FlowConfig(FlowId("g", "n"), uri, {name.replace("__", "."): value for name, value in properties.items()})
    (job,) = IdentityCompiler(catalog, ["embedded"]).compile(config).jobs
    document: dict[str, Any] = json.loads(job.body)
    return document


def reasons(catalog: TemplateCatalog, uri: str, **properties: str) -> str:
    with pytest.raises(FlowCompileError) as caught:
        compiled(catalog, uri, **properties)
    return "; ".join(caught.value.reasons)


def test_properties_template_becomes_a_job_with_the_flows_values(catalog: TemplateCatalog) -> None:
    uri = "FS:///shop/topics.job"
    assert {name: one.default for name, one in catalog.load(uri).spec.parameters.items()} == {
        "extract.table.name": None,
        "brokers": None,
        "topics": None,
    }
    job = compiled(catalog, uri, brokers="k1:9092,k2:9092", topics="orders,returns", extract__table__name="events")
    assert job["job"] == "g__n__topics"
    assert (job["source"]["type"], job["extract"]) == ("kafka", {"namespace": "KAFKA", "table": "events"})
    assert job["output"] == {"path": "lake"}


def test_hocon_template_inherits_refers_and_keeps_defaults_and_variables(catalog: TemplateCatalog) -> None:
    uri = "FS:///shop/query.template"
    assert {name: one.default for name, one in catalog.load(uri).spec.parameters.items()} == {
        "extract.table.name": None,
        "where.column": None,
        "limit": "100",
    }
    job = compiled(catalog, uri, extract__table__name="orders", where__column="id")
    assert job["job"] == "g__n__query"
    assert job["source"]["query"] == "SELECT * FROM orders WHERE id > 100"
    assert "${SHOP_PASSWORD}" in json.dumps(job["source"]), "the executor's environment has it"
    assert job["extract"] == {"namespace": "shop", "table": "orders", "delta_fields": ["id"]}
    other = compiled(catalog, uri, extract__table__name="orders", where__column="id", limit="7")
    assert other["source"]["query"].endswith("> 7"), "a flow's value wins over the template's own"


def test_all_faults_of_values_are_told_at_once_with_their_names(catalog: TemplateCatalog) -> None:
    uri = "FS:///shop/query.template"
    told = reasons(catalog, uri, typo="1", limit="${env:HOME}")
    assert "template query needs the parameter 'where.column'" in told
    assert "template query needs the parameter 'extract.table.name'" in told
    assert "parameter 'limit' of template query: '${env:HOME}' holds `${`" in told
    assert "no template declares the parameter 'typo'; declared: extract.table.name, limit, where.column" in told
    told = reasons(catalog, uri, extract__table__name="orders; DROP TABLE x", where__column="id--")
    for name in ("extract.table.name", "where.column"):
        assert f"parameter '{name}' stands inside of SQL: it takes letters" in told
    told = reasons(catalog, "FS:///shop/topics.job", brokers="b:1", topics="t", extract__table__name="a/../../b")
    assert "parameter 'extract.table.name'" in told


def test_values_stay_inside_of_the_templates_paths(catalog: TemplateCatalog, tmp_path: Path) -> None:
    (tmp_path / "files.template").write_text(
        "gobblin.template.uri = shop/base.template\n"
        "source.class = org.apache.gobblin.source.DatePartitionedAvroFileSource\n"
        'source.filebased.data.directory = "/in/"${folder.name}\n'
    )
    uri = "FS:///files.template"
    assert "/in/a/b" in json.dumps(compiled(catalog, uri, folder__name="a/b", extract__table__name="t"))
    for value in ("/etc", "s3://other/x"):
        told = reasons(catalog, uri, folder__name=value, extract__table__name="t")
        assert "parameter 'folder.name' stands in a path: it takes a relative one" in told
    for value in ("../x", "%2e%2e/x", r"a%5C.%2Ex/..%2fb"):
        assert "holds `${` or `..`" in reasons(catalog, uri, folder__name=value, extract__table__name="t")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gobblin.template.inherit = me.template", "inherits itself in a circle"),
        ("gobblin.template.uri = nowhere.template", "there is no template 'nowhere.template'"),
        ("a = {", "is not valid HOCON"),
    ],
)
def test_template_with_faults_says_which(catalog: TemplateCatalog, tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "me.template").write_text(text)
    with pytest.raises(TemplateError, match=problem):
        catalog.load("FS:///me.template")
    assert "FS:///me.template" in catalog.uris()


def test_change_of_an_inherited_file_is_seen(catalog: TemplateCatalog, tmp_path: Path) -> None:
    values = {"extract__table__name": "orders", "where__column": "id"}
    compiled(catalog, "FS:///shop/query.template", **values)
    (tmp_path / "shop" / "base.template").write_text(BASE.replace("namespace = shop", "namespace = other"))
    assert compiled(catalog, "FS:///shop/query.template", **values)["extract"]["namespace"] == "other"


def test_key_that_is_not_known_fails_the_flow_with_its_file_and_line(catalog: TemplateCatalog, tmp_path: Path) -> None:
    (tmp_path / "me.template").write_text("gobblin.template.uri = shop/base.template\nsource.classs = x\n")
    told = reasons(catalog, "FS:///me.template", extract__table__name="t")
    assert "me.template:2: source.classs: is no key that is known" in told


@pytest.mark.parametrize(
    "line", ["include={outside}/hush.properties", "gobblin.template.uri=../hush.properties", "include=link.properties"]
)
def test_files_outside_of_the_folder_of_templates_are_not_read(line: str, tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    folder.mkdir()
    (tmp_path / "hush.properties").write_text("own.word=hush\n")
    (folder / "link.properties").symlink_to(tmp_path / "hush.properties")
    (folder / "orders.pull").write_text(f"{line.format(outside=tmp_path)}\nextract.namespace=${{own.word}}\n")
    with pytest.raises(TemplateError, match="is outside of the folder of templates"):
        TemplateCatalog(folder).load("FS:///orders.pull")
