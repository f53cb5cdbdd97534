"""What every source promises, over those that need no server; `kafka` and `spark` are in tests/integration."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext, Extractor
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.testing.conformance import ExtractorConformance, SourceConformance
from gobblin_dagster.testing.rows_source import RowsDataset, RowsSource
from tests.services.json_api import Asked, Reply, running_api

ELSEWHERE = {"kafka": "tests/integration/kafka/test_conformance.py", "spark": "tests/integration/test_spark_source.py"}
"""Where sources are tested that need a server."""
DAYS = {"a": [1, 2, 3], "b": [4]}


class TestFilesSource(SourceConformance):
    spec = {
        "type": "files",
        "path": "in/{dataset}/{date:%Y-%m-%d}.csv",
        "format": {"type": "csv", "columns": {"id": "int64"}},
        "files_per_work_unit": 2,
    }
    expected = {urn: [{"id": day} for day in days] for urn, days in DAYS.items()}

    @pytest.fixture(autouse=True)
    def put_files(self, tmp_path: Path) -> None:
        for urn, days in DAYS.items():
            (tmp_path / "in" / urn).mkdir(parents=True)
            for day in days:
                (tmp_path / "in" / urn / f"2013-01-{day:02}.csv").write_text(f"id\n{day}\n")


class TestFilesSourceByModifiedTime(TestFilesSource):
    spec = {
        "type": "files",
        "path": "in/{dataset}/*.csv",
        "format": {"type": "csv", "columns": {"id": "int64"}},
        "new_files": "modified",
    }


class TestFilesSourceByName(TestFilesSource):
    spec = {**TestFilesSourceByModifiedTime.spec, "new_files": "name"}


class TestQuerySource(SourceConformance):
    spec = {
        "type": "query",
        "url": "sqlite:///shop.db",
        "tables": ["orders"],
        "watermark": {"column": "id", "type": "long"},
        "rows_per_work_unit": 2,
    }
    expected = {"main.orders": [{"id": number, "note": f"n{number}"} for number in range(1, 6)]}

    @pytest.fixture(autouse=True)
    def fill(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as shop:
            shop.execute("CREATE TABLE orders (id INTEGER NOT NULL, note TEXT)")
            shop.executemany("INSERT INTO orders VALUES (?, ?)", [(n, f"n{n}") for n in range(1, 6)])


def numbers(unit: Any) -> Iterator[dict[str, Any]]:
    """Read rows as a user's function does."""
    for number in range(unit.low, unit.high):
        yield {"id": number}


def ends() -> dict[str, int]:
    """Say where datasets end, as a user's function does."""
    return {"a": 3, "b": 1}


class TestPythonSource(SourceConformance):
    spec = {
        "type": "python",
        "read": f"{__name__}:numbers",
        "datasets": f"{__name__}:ends",
        "positions_per_work_unit": 2,
    }
    expected = {"a": [{"id": 0}, {"id": 1}, {"id": 2}], "b": [{"id": 0}]}


class TestRowsSource(SourceConformance):
    spec = {
        "type": f"{RowsSource.__module__}:RowsSource",
        "datasets": {"a": {"rows": 3, "unit_rows": 2}, "b": {"rows": 0}},
    }
    expected = {"a": [{"id": n, "dataset": "a", "value": f"v{n}" if n else None} for n in range(3)], "b": []}


class TestRowsExtractor(ExtractorConformance):
    expected = TestRowsSource.expected["a"][:2]

    @pytest.fixture
    def open_extractor(self) -> Callable[[], Extractor]:
        source = RowsSource(RowsSource.Options(datasets={"a": RowsDataset(rows=3)}), ConstructContext("job", "/"))
        unit = WorkUnit("a-0", "a", LongWatermark(0), LongWatermark(2))
        return lambda: source.extractor(unit)


class TestRestSource(SourceConformance):
    expected = {"issues": [{"id": n} for n in range(1, 6)]}

    @pytest.fixture(autouse=True)
    def serve(self) -> Iterator[None]:
        def reply(asked: Asked) -> Reply:
            first = int(asked.params.get("min_id", 1))
            found = [{"id": n} for n in range(1, 6) if n >= first]
            return Reply(found[::-1][:1] if "sort" in asked.params else found)

        with running_api(reply) as api:
            self.spec = {
                "type": "rest",
                "url": api.url,
                "datasets": {"issues": "/issues"},
                "columns": {"id": "int64"},
                "cursor": {"column": "id", "newest_params": {"sort": "-id"}, "low_param": "min_id"},
            }
            yield


def test_every_source_is_tested_here_or_with_its_server() -> None:
    here = {"files", "query", "python", "rest"}
    assert here | set(ELSEWHERE) == set(registry.types(ConstructKind.SOURCE))
