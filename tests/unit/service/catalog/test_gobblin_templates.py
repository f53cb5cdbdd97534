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
source.conn.password = ${?env:SHOP_PASSWORD}
source.querybased.schema = shop
source.entity = ${extract.table.name}
source.querybased.query = "SELECT * FROM "${extract.table.name}" WHERE "${where.column}" > "${limit}
extract.delta.fields = ${where.column}
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
    assert (job["source"]["type"], job["extract"]) == ("kafka", {"namespace": "shop", "table": "events"})
    assert job["source"]["topics"] == "orders,returns" or job["source"]["topics"] == ["orders", "returns"]
    assert job["output"] == {"path": "lake"}
