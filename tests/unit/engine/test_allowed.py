"""No option of a job leads past the allow lists by another key, another case or a name of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.engine.allowed import faults_of
from gobblin_dagster.spec.job import JobSpec

LISTS = AllowLists(paths=("in", "lake"), modules=(), hosts=("broker:9092",))


def spark(**options: Any) -> dict[str, Any]:
    """Return a Spark source."""
    return {"type": "spark", "format": "json", **options}


def kafka(**config: str) -> dict[str, Any]:
    """Return a Kafka source with settings of the client library; `_` stands for `.`."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return {"type": "kafka", "brokers": "broker:9092", "topics": ["orders"], "config": settings}


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (spark(options={"PATHS": '["/etc/passwd"]'}), "source.options.PATHS"),
        (spark(options={"paths": '["/etc/passwd"]'}), "source.options.paths"),
        (spark(options={"Path": "../elsewhere"}), "source.options.Path"),
        (spark(options={"path": "file:/etc/passwd"}), "source.options.path"),
        (spark(path="in/{a,../../b}"), "source.path"),
        (spark(path="in/{dataset}", datasets=["../../etc"]), "source.datasets[0]"),
        (spark(path="in/{dataset}", datasets=["orders", ".."]), "source.datasets[1]"),
        (spark(table="parquet.{dataset}", datasets=["file:/etc"]), "source.datasets[0]"),
        (spark(options={"url": "jdbc:derby:/etc/x;create=true"}), "source.options.url"),
        (kafka(plugin_library_paths="/etc/x.so"), "source.config.plugin.library.paths"),
        (kafka(sasl_kerberos_kinit_cmd="touch x"), "source.config.sasl.kerberos.kinit.cmd"),
        (kafka(metadata_broker_list="broker:9092,evil:1"), "source.config.metadata.broker.list"),
        (kafka(bootstrap_servers="evil:1"), "source.config.bootstrap.servers"),
    ],
    ids=str,
)
def test_ways_past_the_lists_are_refused(source: dict[str, Any], place: str, tmp_path: Path) -> None:
    assert [fault.path for fault in faults_of(job(source), str(tmp_path), LISTS)] == [place]


@pytest.mark.parametrize(
    "source",
    [
        spark(path="in/{dataset}/*.json", datasets=["orders", "o.2024", "a b"]),
        spark(path="in/{a,b}", options={"multiLine": "true", "dateFormat": "dd/MM/yyyy"}),
        kafka(client_id="shop", security_protocol="SASL_SSL", bootstrap_servers="broker:9092"),
    ],
    ids=str,
)
def test_ordinary_options_are_allowed(source: dict[str, Any], tmp_path: Path) -> None:
    lists = AllowLists(paths=(str(tmp_path),), modules=(), hosts=LISTS.hosts)
    assert faults_of(job(source), str(tmp_path), lists) == ()


def job(source: dict[str, Any]) -> JobSpec:
    """Return a job that reads the source."""
    return JobSpec.model_validate(
        {"job": "j", "source": source, "extract": {"namespace": "s", "table": "t"}, "output": {"path": "lake"}}
    )
