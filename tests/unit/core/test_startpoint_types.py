"""Startpoint types of users: stored with name, version and JSON, applied by sources that know them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from gobblin_dagster.core import serialization
from gobblin_dagster.core.constructs import SourceContext
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.startpoint import Oldest, Specific, Startpoint, StartpointPosition, parse_startpoint_position
from gobblin_dagster.core.startpoint_types import CustomPosition, UnknownPosition, register_startpoint_type
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.rows_source import RowsSource
from tests.unit.engine.jobs import by_urn, job_spec, published, run
from tests.unit.engine.plan.test_startpoints import planned, waiting, wish

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
TEN = {"a": {"rows": 10}}


@register_startpoint_type
@dataclass(frozen=True, slots=True)
class LastRows(CustomPosition):
    """The last rows that there are."""

    kind: ClassVar[str] = "last_rows"
    version: ClassVar[int] = 2
    rows: int

    def to_json(self) -> Any:
        return {"rows": self.rows}

    @classmethod
    def from_json(cls, raw: Any, version: int) -> Self:
        return cls(raw if version == 1 else int(raw["rows"]))

    def __str__(self) -> str:
        return f"the last {self.rows} rows"


@register_startpoint_type
@dataclass(frozen=True, slots=True)
class Fourth(CustomPosition):
    """A type that needs no source."""

    kind: ClassVar[str] = "fourth"

    def to_json(self) -> Any:
        return None

    @classmethod
    def from_json(cls, raw: Any, version: int) -> Self:
        return cls()

    def apply(self, dataset_urn: str, source: object, context: Any) -> StartpointPosition:
        return Specific("4")


class TailSource(RowsSource):
    """A source that knows the last rows."""

    def visit_last_rows(self, dataset_urn: str, position: LastRows, context: SourceContext) -> LongWatermark:
        return LongWatermark(self._options.datasets[dataset_urn].rows - position.rows)


def tail_job() -> JobSpec:
    source = {"type": "tests.unit.core.test_startpoint_types:TailSource", "datasets": TEN}
    return job_spec(TEN, source=source)


def stored(position: StartpointPosition) -> Startpoint:
    return Startpoint("j", "d", position, NOW, NOW, "anna@host", id="1")


def test_position_is_stored_with_name_and_version_and_read_again() -> None:
    document = serialization.to_document(stored(LastRows(3)))
    assert document["position"] == {"kind": "last_rows", "version": 2, "value": {"rows": 3}}
    assert serialization.from_document(Startpoint, document) == stored(LastRows(3))
    document["position"] = {"kind": "last_rows", "version": 1, "value": 5}
    assert serialization.from_document(Startpoint, document) == stored(LastRows(5))


def test_built_in_positions_are_stored_as_before() -> None:
    assert serialization.to_document(stored(Oldest()))["position"] == {"kind": "oldest"}


@pytest.mark.parametrize(
    "raw", [{"kind": "other", "version": 1, "value": [1]}, {"kind": "last_rows", "version": 9, "value": 1}]
)
def test_position_of_an_unknown_type_is_kept_and_refused_by_name(tmp_path: Path, raw: dict[str, Any]) -> None:
    document = serialization.to_document(stored(Oldest())) | {"position": raw}
    loaded = serialization.from_document(Startpoint, document)
    assert isinstance(loaded.position, UnknownPosition)
    assert serialization.to_document(loaded) == document
    job = tail_job()
    run(tmp_path, job)
    wish(tmp_path, job, loaded.position)
    problem = planned(tmp_path, job).problem
    assert f"no startpoint type {raw['kind']!r} of version {raw['version']}" in problem


def test_source_that_knows_the_type_applies_it(tmp_path: Path) -> None:
    job = tail_job()
    run(tmp_path, job)
    wish(tmp_path, job, LastRows(3))
    assert "by the startpoint the last 3 rows of anna@host" in planned(tmp_path, job).notes[0]
    assert by_urn(run(tmp_path, job))["a"].rows_read == 3
    assert waiting(tmp_path, job) == {}


def test_source_that_does_not_know_the_type_refuses_it_by_name(tmp_path: Path) -> None:
    job = job_spec(TEN)
    saved = wish(tmp_path, job, LastRows(3))
    expected = "source RowsSource knows no startpoints of type 'last_rows': it has no method `visit_last_rows`"
    assert expected in planned(tmp_path, job).problem
    run(tmp_path, job)
    assert waiting(tmp_path, job) == {"a": saved}


def test_type_may_answer_with_a_built_in_position(tmp_path: Path) -> None:
    job = job_spec(TEN)
    wish(tmp_path, job, Fourth())
    run(tmp_path, job)
    assert published(tmp_path, job, "a") == [4, 5, 6, 7, 8, 9]


def test_position_is_written_as_kind_and_json() -> None:
    assert parse_startpoint_position('last_rows:{"rows": 3}') == LastRows(3)
    with pytest.raises(UsageError, match="is none of type 'last_rows'"):
        parse_startpoint_position("last_rows:3")


@pytest.mark.parametrize(("kind", "problem"), [("oldest", "has the name 'oldest'"), ("A b", "has the name 'A b'")])
def test_name_that_is_none_is_refused(kind: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        register_startpoint_type(type("Mine", (LastRows,), {"kind": kind}))


def test_second_type_of_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'last_rows' is registered already, by .*:LastRows"):
        register_startpoint_type(type("Mine", (LastRows,), {}))
    assert replace(LastRows(3), rows=4) == LastRows(4)
