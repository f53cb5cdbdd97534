"""What every publisher promises, over all that we ship."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.testing.conformance import PublisherConformance

TABLE = {"url": "sqlite:///warehouse.db"}
CASES: dict[str, Mapping[str, Any]] = {
    "append": {},
    "delta": {},
    "delta merge": {"mode": "merge"},
    "delta for each dataset": {"table": "dataset"},
    "iceberg": {"table": "raw.rows", "catalog": {"type": "sql", "uri": "sqlite:///catalog.db"}},
    "iceberg merge": {
        "mode": "merge",
        "delete_when": "name IS NULL",
        "table": "raw.rows",
        "catalog": {"type": "sql", "uri": "sqlite:///catalog.db"},
    },
    "kafka_topic": {"brokers": "127.0.0.1:9", "topic": "rows"},
    "merge": {"key": ["id"]},
    "noop": {},
    "replace": {},
    "replace_partitions": {},
    "sql_table": {**TABLE, "table": "rows"},
    "sql_table for each dataset": {**TABLE, "table": "t_{dataset}", "mode": "replace"},
    "sql_table upsert": {**TABLE, "table": "rows", "mode": "upsert", "key": ["id"]},
    "timestamped": {},
    "timestamped and replaced": {"name": "commit", "replace": True},
}
"""Options, by type."""


class TestPublishers(PublisherConformance):
    @pytest.fixture(autouse=True, params=CASES)
    def case(self, request: pytest.FixtureRequest) -> None:
        self.spec = {"type": request.param.partition(" ")[0], **CASES[request.param]}


def test_every_publisher_is_tested_here() -> None:
    assert {name.partition(" ")[0] for name in CASES} == set(registry.types(ConstructKind.PUBLISHER))
