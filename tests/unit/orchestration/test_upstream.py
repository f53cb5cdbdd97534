"""What a job reads from, as Dagster shows it: named as in the job file, without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from gobblin_dagster.demo.project import write_demo
from gobblin_dagster.orchestration import BranchData, GobblinTranslator, build_definitions, gobblin_assets
from gobblin_dagster.orchestration.upstream import upstream_specs
from gobblin_dagster.spec.asset import age
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec, project
from tests.unit.orchestration.world import World

SECRET = "postgresql://anna:secret@db.shop:5432/shop"


@pytest.mark.parametrize(
    ("source", "keys"),
    [
        ({"type": "files", "path": "data/flights/{dataset}/{date:%Y}.csv", "format": "csv"}, ["files/data/flights"]),
        ({"type": "files", "path": "s3://lake/in/*/x.csv", "format": {"type": "csv"}}, ["s3/lake/in"]),
        ({"type": "files", "path": "sftp://bob:pw@host:22/in/{dataset}.csv", "format": "csv"}, ["sftp/host/in"]),
        ({"type": "files", "path": "{dataset}.csv", "format": "csv"}, []),
        (
            {"type": "query", "url": SECRET, "tables": ["sales.orders", "users"]},
            [
                "postgresql/shop/sales/orders",
                "postgresql/shop/users",
            ],
        ),
        ({"type": "query", "url": "sqlite:///shop.db", "include": [".*"]}, ["sqlite/shop.db"]),
        ({"type": "kafka", "topics": ["orders", "shop\\.events", "log.*"]}, ["kafka/orders", "kafka/shop.events"]),
        (
            {"type": "rest", "url": "https://anna:pw@api.shop.com/v1?key=1", "datasets": {"a": "/a"}},
            ["api/api.shop.com"],
        ),
        ({"type": "spark", "table": "main.sales.orders"}, ["spark/main/sales/orders"]),
        ({"type": "spark", "format": "parquet", "path": "data/in"}, ["files/data/in"]),
        ({"type": "spark", "format": "jdbc", "query": "select 1"}, []),
        ({"type": "shop.orders:OrdersSource"}, []),
    ],
)
def test_upstream_assets_are_named_after_what_the_source_reads(source: dict[str, Any], keys: list[str]) -> None:
    specs = upstream_specs(job_spec({}, source=source))
    assert [spec.key.to_user_string() for spec in specs] == keys
    assert not [word for word in ("secret", "pw", "anna", "bob", "key=1") if word in repr(specs)]


def test_jobs_that_read_the_same_folder_share_an_upstream_asset(world: World) -> None:
    source = {"type": "files", "path": "data/in/{date:%Y-%m-%d}.csv", "format": "csv"}
    jobs = [
        job_spec({}, job=name, source=source, extract={"namespace": "test", "table": name})
        for name in ("first", "second")
    ]
    graph = build_definitions(project(world.root, *jobs), runner=InlineRunner()).resolve_asset_graph()
    folder = dg.AssetKey(["files", "data", "in"])
    assert graph.get(folder).is_external
    assert {key.path[1] for key in graph.get(folder).child_keys} == {"first", "second"}
    assert graph.get(folder).kinds == {"file", "csv"}


class Connected(GobblinTranslator):
    def get_upstream_specs(self, job: Any) -> list[dg.AssetSpec]:
        return [dg.AssetSpec("export")]


def test_translator_connects_a_job_to_an_asset_defined_elsewhere(world: World) -> None:
    @dg.asset
    def export() -> None: ...

    made = build_definitions(project(world.root, world.job), translator=Connected(), runner=InlineRunner())
    defs = dg.Definitions.merge(made, dg.Definitions([export]))
    assert defs.resolve_asset_graph().get(dg.AssetKey("export")).child_keys == {*world.binding.keys.values()}
    world.translator = Connected()
    assert world.run_all().success
    assert world.run_range("a").success


SHOWN = {
    "key": "lake/sales/{branch}",
    "upstream": ["exports/numbers"],
    "uri": "s3://lake/{table}/{branch}",
    "owners": ["team:shop", "anna@shop.com"],
    "tags": {"domain": "sales", "dagster/storage_kind": "s3"},
    "group": "shop",
    "kinds": ["iceberg", "silver"],
    "table_name": "lake.{table}_{branch}",
    "freshness": {"fail_after": "26h", "warn_after": "90m"},
}


def test_job_file_says_how_its_assets_are_shown(world: World) -> None:
    world.parts["asset"] = SHOWN
    made = gobblin_assets(project(world.root, world.job), world.job, runner=InlineRunner())
    for spec in made.specs:
        assert (list(spec.owners), spec.group_name, spec.tags["domain"]) == (SHOWN["owners"], "shop", "sales")
        assert (spec.kinds, spec.tags["dagster/storage_kind"]) == ({"iceberg", "silver"}, "s3")
        branch = spec.key.path[-1]
        assert spec.key.to_user_string() == f"lake/sales/{branch}"
        assert [one.asset_key.to_user_string() for one in spec.deps] == ["exports/numbers"]
        assert spec.metadata["dagster/table_name"] == f"lake.numbers_{branch}"
        assert spec.metadata["dagster/uri"] == f"s3://lake/numbers/{branch}"
        policy: Any = spec.freshness_policy
        assert (policy.fail_window.to_timedelta(), policy.warn_window.to_timedelta()) == (
            age("26h"),
            age("90m"),
        )
    assert world.run_all().success
    assert world.events("a")[0]["dagster/uri"] == "s3://lake/numbers/all"
    world.parts["asset"] = {"upstream": []}
    assert [spec.deps for spec in gobblin_assets(project(world.root, world.job), world.job).specs] == [[], []]


@pytest.mark.parametrize(
    ("asset", "said"),
    [
        ({"key": "lake/a b"}, "asset.key"),
        ({"key": "lake/numbers"}, "needs {branch}"),
        ({"key": "/lake"}, "asset.key"),
        ({"key": "{tabel}"}, "tabel"),
        ({"upstream": ["exports//orders"]}, "asset.upstream"),
        ({"uri": "s3://{bucket}"}, "bucket"),
        ({"owners": ["anna"]}, "email address"),
        ({"tags": {"a b": "c"}}, "63 letters"),
        ({"group": "a b"}, "group"),
        ({"kinds": ["a b"]}, "kinds"),
        ({"table_name": "{table"}, "table_name"),
        ({"table_name": "{tabel}"}, "tabel"),
        ({"freshness": {"fail_after": "1 day"}}, "fail_after"),
        ({"freshness": {"fail_after": "1h", "warn_after": "60m"}}, "less than"),
    ],
)
def test_what_dagster_would_refuse_is_refused_in_the_job_file(asset: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        job_spec({}, asset=asset)


def test_table_is_the_one_that_is_published_to(world: World) -> None:
    world.parts["publisher"] = {"type": "iceberg", "table": "lake.{namespace}.{table}_{branch}"}
    (data, *_) = [BranchData(world.job, branch) for branch in world.job.fork.branches]
    assert GobblinTranslator().get_asset_spec(data).metadata["dagster/table_name"] == "lake.test.numbers_all"


def test_asset_links_to_its_branch_in_the_job_file(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    made = gobblin_assets(tmp_path / "demo", "flights")
    file = tmp_path / "demo" / "jobs" / "flights.yaml"
    lines = file.read_text().splitlines()
    for spec in made.specs:
        (place,) = spec.metadata["dagster/code_references"].code_references
        assert place.file_path == str(file)
        assert f"name: {spec.key.path[-1]}" in lines[place.line_number - 1]
