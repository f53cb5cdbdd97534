"""Datasets against constraints, and capabilities against types of nodes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gobblin_dagster.service.topology.model import CapabilitySpec, Dataset, TopologySpec


@pytest.mark.parametrize(
    ("found", "wanted", "told"),
    [
        ({"format": "csv"}, {"format": "parquet"}, "format is csv, not parquet"),
        ({"format": "csv"}, {"format": "csv", "codec": "gzip"}, ""),
        ({"platform": "hdfs"}, {"platform": "s3"}, "platform is hdfs, not s3"),
        ({"codec": "gzip"}, {"codec": "any"}, ""),
        ({"encryption": "none"}, {"encryption": "gpg"}, "encryption is none, not gpg"),
        ({"path": "orders/eu"}, {"path": "orders/*"}, ""),
        ({"path": "orders/eu"}, {"path": "orders"}, ""),
        ({"path": "orders"}, {"path": "customers"}, "path is orders, not customers"),
        ({"path": "ordersold"}, {"path": "orders"}, "path is ordersold, not orders"),
    ],
)
def test_dataset_fits_a_constraint_if_each_field_does_and_any_matches(
    found: dict[str, str], wanted: dict[str, str], told: str
) -> None:
    assert Dataset(**found).mismatch(Dataset(**wanted)) == told


def test_dataset_after_an_edge_is_what_the_edge_makes_then_what_it_was_then_what_the_edge_takes() -> None:
    before = Dataset(platform="local", path="orders", codec="gzip")
    taken = Dataset(format="csv", encryption="none", path="ord*")
    after = before.through(taken, Dataset(format="parquet"), "s3")
    assert after == Dataset(platform="s3", path="orders", format="parquet", codec="gzip", encryption="none")
    assert after.through(Dataset(), Dataset(path="copy"), "any").path == "copy"


def test_capability_covers_types_of_nodes() -> None:
    executor = TopologySpec(capabilities=(CapabilitySpec(source="files"), CapabilitySpec(destination="lake")))
    assert executor.can_move("files", "database")
    assert executor.can_move("broker", "lake")
    assert not executor.can_move("broker", "database")


def test_executors_behind_kafka_name_their_topics() -> None:
    kafka = {"brokers": "b:9092", "orders": "o", "reports": "r"}
    every: dict[str, object] = {"capabilities": [{}]}
    assert TopologySpec.model_validate({"type": "kafka", "kafka": kafka, **every}).queue("east") == "east"
    with pytest.raises(ValidationError, match="the type kafka needs `kafka:"):
        TopologySpec.model_validate({"type": "kafka", **every})
    with pytest.raises(ValidationError, match="is for executors of the type kafka"):
        TopologySpec.model_validate({"type": "store", "kafka": kafka, **every})


def test_speed_of_an_executor_needs_the_number_of_jobs_that_share_it() -> None:
    every: dict[str, object] = {"type": "store", "capabilities": [{}]}
    assert TopologySpec.model_validate({**every, "rows_per_second": 5, "jobs_at_once": 2}).rows_per_second == 5
    for kind in ("store", "embedded"):
        with pytest.raises(ValidationError, match="are divided by `jobs_at_once`, which is missing"):
            TopologySpec.model_validate({**every, "type": kind, "bytes_per_second": 5})


def test_executors_in_another_dagster_name_its_webserver_and_show_their_token_to_nobody_else() -> None:
    about = {"url": "https://far.example:3000/dagster", "location": "gobblin"}
    every: dict[str, object] = {"type": "dagster", "capabilities": [{}]}
    found = TopologySpec.model_validate({**every, "dagster": about})
    assert found.dagster is not None
    assert (found.queue("far"), found.dagster.job, found.dagster.repository) == (
        "far",
        "gobblin_order",
        "__repository__",
    )
    with pytest.raises(ValidationError, match="the type dagster needs `dagster:"):
        TopologySpec.model_validate(every)
    for url in ("ftp://a", "https://u:p@a", "https://a/../b", "https://a/b?c", "https://a/b#c", "https://", "a:3000"):
        with pytest.raises(ValidationError, match="url"):
            TopologySpec.model_validate({**every, "dagster": {**about, "url": url}})
    for url in ("http://127.0.0.1:3000", "http://localhost", "http://[::1]:3000/x"):
        TopologySpec.model_validate({**every, "dagster": {**about, "url": url, "token_env": "TOKEN"}})
    with pytest.raises(ValidationError, match="needs a URL that begins with https://"):
        TopologySpec.model_validate({**every, "dagster": {**about, "url": "http://far.example", "token_env": "TOKEN"}})
