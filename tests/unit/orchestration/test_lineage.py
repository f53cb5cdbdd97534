"""Which columns of the source a published column is made of."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.orchestration import GobblinTranslator
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.lineage import column_lineage
from tests.unit.engine.jobs import job_spec, project
from tests.unit.orchestration.world import World

FILES = {"type": "files", "path": "data/in/{date:%Y-%m-%d}.csv", "format": "csv"}


def lineage(world: World, converters: list[dict[str, Any]], *columns: str, branch: str = "all") -> Any:
    """Return the source's columns by published column."""
    job = job_spec({}, source=FILES, converters=converters)
    found = column_lineage(JobBinding.of(project(world.root, job), job), branch, columns)
    return found and {
        column: sorted(dep.column_name for dep in deps if dep.asset_key == dg.AssetKey(["files", "data", "in"]))
        for column, deps in found.deps_by_column.items()
    }


@pytest.mark.parametrize(
    ("converters", "columns"),
    [
        ([], {"a": ["a"]}),
        ([{"type": "rename", "columns": {"a": "b"}}], {"b": ["a"], "c": ["c"]}),
        ([{"type": "rename", "columns": {"a": "b", "b": "a"}}], {"b": ["a"], "a": ["b"]}),
        ([{"type": "select", "columns": ["a", "d.x"]}], {"a": ["a"], "x": ["d"]}),
        ([{"type": "select", "columns": {"b": "a.y"}}], {"b": ["a"]}),
        ([{"type": "mask", "columns": ["a"]}, {"type": "drop", "columns": ["z"]}], {"a": ["a"]}),
        ([{"type": "sql", "where": "a > 1"}], {"a": ["a"]}),
        (
            [{"type": "sql", "select": "make_date(y, M, 1) as day, b, d.x as e"}],
            {"day": ["M", "y"], "b": ["b"], "e": ["d"]},
        ),
        (
            [{"type": "sql", "select": "* exclude (z) replace (upper(b) as b), a + c as s"}],
            {"a": ["a"], "b": ["b"], "s": ["a", "c"]},
        ),
        (
            [
                {"type": "rename", "columns": {"old": "new"}},
                {"type": "sql", "select": "new * 2 as twice, *"},
                {"type": "add", "columns": {"read_at": "run_time"}},
            ],
            {"twice": ["old"], "new": ["old"], "other": ["other"]},
        ),
    ],
)
def test_lineage_follows_converters(
    world: World, converters: list[dict[str, Any]], columns: dict[str, list[str]]
) -> None:
    assert lineage(world, converters, *columns) == columns


@pytest.mark.parametrize(
    ("converters", "column"),
    [
        ([{"type": "shop:Own"}], "a"),
        ([{"type": "shop:Own"}, {"type": "rename", "columns": {"a": "b"}}], "b"),
        ([{"type": "sql", "select": "42 as answer"}], "answer"),
        ([{"type": "sql", "select": "a"}], "b"),
        ([{"type": "sql", "select": "* exclude (a)"}], "a"),
        ([{"type": "sql", "select": "this is no sql"}], "a"),
        ([{"type": "select", "columns": ["a"]}], "b"),
    ],
)
def test_lineage_claims_nothing_that_it_does_not_know(
    world: World, converters: list[dict[str, Any]], column: str
) -> None:
    assert lineage(world, converters, column) is None


class FromExport(GobblinTranslator):
    def get_upstream_specs(self, job: Any) -> list[dg.AssetSpec]:
        return [dg.AssetSpec("export")]


def test_materializations_carry_the_lineage_of_their_branch(world: World) -> None:
    world.translator = FromExport()
    world.parts["converters"] = [{"type": "rename", "columns": {"id": "number"}}]
    assert world.run_all().success
    whole, masked = (world.events("a", branch)[0][md.LINEAGE].deps_by_column for branch in ("all", "masked"))
    assert [dep.column_name for dep in whole["number"]] == ["id"]
    assert set(whole) - set(masked) == {"value"}


def test_lineage_of_several_upstream_assets_is_not_known(world: World) -> None:
    assert world.run_all().success
    assert md.LINEAGE not in world.events("a")[0]
