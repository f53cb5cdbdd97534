"""What downstream assets load: whole commits of their partitions, as the type that they ask for."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.orchestration import CommitStepIOManager, PublishedDatasets
from gobblin_dagster.orchestration import metadata as md
from tests.unit.orchestration.world import World

PARTITIONS = dg.DynamicPartitionsDefinition(name="numbers.dataset_urn")


def downstream(
    wanted: Any,
    seen: list[Any],
    partitions: dg.PartitionsDefinition[str] | None,
    metadata: dict[str, Any] | None = None,
) -> dg.AssetsDefinition:
    def below(numbers: Any) -> None:
        seen.append(numbers)

    below.__annotations__["numbers"] = wanted
    ins = {"numbers": dg.AssetIn(key=["test", "numbers", "all"], metadata=metadata)}
    return dg.asset(ins=ins, partitions_def=partitions)(below)


def materialize(world: World, asset: dg.AssetsDefinition, partition: str | None = None) -> dg.ExecuteInProcessResult:
    world.downstream = [asset]
    job = world.definitions.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=world.instance, partition_key=partition, asset_selection=[asset.key])


@pytest.mark.parametrize(
    ("wanted", "rows_of"),
    [
        (pa.Table, lambda got: got.num_rows),
        (ds.Dataset, lambda got: got.count_rows()),
        (pd.DataFrame, len),
        (pl.DataFrame, len),
        (pl.LazyFrame, lambda got: len(got.collect())),
        (duckdb.DuckDBPyRelation, lambda got: len(got.fetchall())),
        (dict[str, pa.Table], lambda got: got["c c"].num_rows),
        (list[str], lambda got: sum(pq.read_metadata(path).num_rows for path in got)),
        (PublishedDatasets, lambda got: got.rows),
        (Any, lambda got: got.rows),
    ],
    ids=["table", "dataset", "pandas", "polars", "lazy", "duckdb", "tables", "paths", "published", "untyped"],
)
def test_asset_in_a_separate_run_loads_its_partition_as_the_type_it_asks_for(
    world: World, wanted: Any, rows_of: Any
) -> None:
    world.run_all()
    seen: list[Any] = []
    assert materialize(world, downstream(wanted, seen, PARTITIONS), "c%20c").success
    assert [rows_of(got) for got in seen] == [20]


@pytest.mark.parametrize(
    ("wanted", "counts_of"),
    [
        (pa.Table, lambda got: {one["values"]: one["counts"] for one in got["urn"].value_counts().to_pylist()}),
        (
            ds.Dataset,
            lambda got: {"b/1": got.count_rows(filter=ds.field("urn") == "b/1"), "schema": got.schema.names[-1]},
        ),
        (pd.DataFrame, lambda got: got["urn"].value_counts().to_dict()),
        (pl.LazyFrame, lambda got: dict(got.group_by("urn").len().collect().iter_rows())),
        (dict[str, pa.Table], lambda got: {"a": got["a"]["urn"].unique().to_pylist()}),
    ],
    ids=["table", "dataset", "pandas", "lazy", "tables"],
)
def test_rows_tell_their_dataset_where_the_input_asks_for_it(world: World, wanted: Any, counts_of: Any) -> None:
    world.run_elsewhere()
    world.add_partitions("a", "b/1", "c c")
    seen: list[Any] = []
    asset = downstream(wanted, seen, None, {"gobblin/urn_column": "urn"})
    assert materialize(world, asset).success
    rows = {"a": 30, "b/1": 5, "c c": 20}
    (found,) = [counts_of(got) for got in seen]
    assert found in (rows, {"b/1": 5, "schema": "urn"}, {"a": ["a"]})


def test_column_that_exists_is_not_overwritten(world: World) -> None:
    world.run_elsewhere()
    published = PublishedDatasets.load(world.binding.project, world.job, "all")
    with pytest.raises(UsageError, match="column 'dataset' already"):
        dataclasses.replace(published, urn_column="dataset").to_arrow()


def test_asset_over_all_partitions_loads_only_what_was_ever_committed(world: World) -> None:
    world.datasets["b/1"]["fail_at"] = 1
    world.run_all()
    seen: list[PublishedDatasets] = []
    assert materialize(world, downstream(PublishedDatasets, seen, None)).success
    assert list(seen[0].files) == ["a", "c c"]
    assert seen[0].rows == seen[0].to_arrow().num_rows == 50


def test_asset_over_a_partition_never_committed_gets_an_empty_table(world: World) -> None:
    world.add_partitions("a")
    seen: list[pa.Table] = []
    assert materialize(world, downstream(pa.Table, seen, PARTITIONS), "a").success
    assert (seen[0].num_rows, seen[0].num_columns) == (0, 0)


def test_failed_dataset_is_loaded_as_it_was_last_committed(world: World) -> None:
    world.run_all()
    world.datasets["a"] |= {"rows": 40, "fail_at": 35}
    world.run_all()
    seen: list[pa.Table] = []
    materialize(world, downstream(pa.Table, seen, PARTITIONS), "a")
    assert sorted(seen[0]["id"].to_pylist()) == list(range(30))


def test_asset_in_the_same_run_runs_after_the_commit_and_the_watermark_stays_the_newest_event(world: World) -> None:
    world.add_partitions("a", "b/1", "c c")
    world.run_range("a")
    seen: list[PublishedDatasets] = []
    world.downstream = [downstream(PublishedDatasets, seen, PARTITIONS)]
    assert world.run_range("a", "c%20c", beyond=["below"]).success
    assert seen[0].rows == 55
    assert world.events("c c")[0][md.ACTUAL_HIGH] == "20"
    assert world.events("a")[0][md.MOVED] is False
    assert world.status() == ({"a", "b/1", "c%20c"}, set())


def test_checks_stand_in_a_run_with_assets_downstream(world: World) -> None:
    world.parts = {"task_policies": [{"type": "row_count"}]}
    world.add_partitions("a", "b/1", "c c")
    assert world.run_range("b/1").success
    seen: list[Any] = []
    world.downstream = [downstream(pa.Table, seen, PARTITIONS)]
    assert world.run_range("a", "c%20c", beyond=["below"]).success
    assert len(seen) == 1
    assert world.checked("row_count") == {"succeeded": {"a", "b/1", "c%20c"}}


def test_asset_in_the_same_run_does_not_run_after_a_failure(world: World) -> None:
    world.add_partitions("a", "b/1", "c c")
    world.datasets["b/1"]["fail_at"] = 1
    seen: list[PublishedDatasets] = []
    world.downstream = [downstream(PublishedDatasets, seen, PARTITIONS)]
    assert not world.run_range("a", "c%20c", beyond=["below"]).success
    assert seen == []


def test_columns_that_became_folders_come_back_with_their_types(world: World) -> None:
    world.parts = {"writer": {"type": "parquet", "partition_by": ["dataset"]}}
    world.run_all()
    published = PublishedDatasets.load(world.binding.project, world.job, "all", ["a", "c c"])
    table = published.to_arrow()
    assert table.schema.field("dataset").type == pa.string()
    assert sorted(set(table["dataset"].to_pylist())) == ["a", "c c"]
    assert table["id"].type == pa.int64()


def test_formats_and_columns_may_differ_between_snapshots(world: World) -> None:
    world.parts = {"writer": {"type": "jsonl"}, "converters": [{"type": "drop", "columns": ["dataset"]}]}
    world.run_all()
    world.parts = {"writer": {"type": "parquet"}}
    world.datasets = {urn: {"rows": 40} for urn in world.datasets}
    world.run_all()
    table = PublishedDatasets.load(world.binding.project, world.job, "all", ["a"]).to_arrow()
    assert sorted(table["id"].to_pylist()) == list(range(40))
    assert table["dataset"].null_count == 30


ONE_BRANCH = {"branches": [{"name": "all"}]}
TYPED = {
    "type": "sql",
    "select": "'00' || id as code, case id when 1 then '' when 2 then 'NA' when 3 then 'say \"a\",\nb' "
    "else value end as text, "
    "cast(id as decimal(20,3)) / 8 as amount, id as whole, timestamp '2020-01-01 12:00:00.5' as wall, "
    "timestamptz '2020-01-01 12:00:00+02' as instant, '2020-01-01' as like_a_time, id % 2 = 0 as even",
}


@pytest.mark.parametrize(
    "writer",
    [
        {"type": "csv"},
        {"type": "csv", "delimiter": ";", "header": False, "compression": "gzip"},
        {"type": "jsonl", "compression": "gzip"},
    ],
    ids=["csv", "csv of another form", "jsonl"],
)
def test_text_formats_come_back_with_the_types_and_nulls_that_were_written(
    world: World, writer: dict[str, Any]
) -> None:
    branches = [{"name": "all", "writer": writer}, {"name": "truth", "writer": {"type": "parquet"}}]
    world.parts = {"converters": [TYPED], "fork": {"branches": branches}}
    world.run_all()
    tables = [
        PublishedDatasets.load(world.binding.project, world.job, name, ["a"]).to_arrow() for name in ("all", "truth")
    ]
    assert tables[0].num_rows == 30
    assert tables[0].schema.equals(tables[1].schema)
    assert tables[0].sort_by("code").equals(tables[1].sort_by("code"))


@pytest.mark.parametrize("writer", ["csv", "jsonl"])
def test_text_that_was_wider_once_is_read_all_the_same(world: World, writer: str) -> None:
    world.parts = {"writer": writer, "fork": ONE_BRANCH}
    for rows, value in ((10, "id + 1e10::bigint as n, null::int as later"), (20, "id::tinyint as n, 5 as later")):
        world.parts["converters"] = [{"type": "sql", "select": f"id, {value}"}]
        world.datasets = {"a": {"rows": rows}}
        world.run_all()
    table = PublishedDatasets.load(world.binding.project, world.job, "all").to_arrow().sort_by("id")
    assert table["n"].to_pylist() == [*range(10**10, 10**10 + 10), *range(10, 20)]
    assert table["later"].to_pylist() == [None] * 10 + [5] * 10
    world.parts["converters"] = [{"type": "sql", "select": "id, null::tinyint as n, null::double as later"}]
    world.datasets = {"b": {"rows": 3}}
    world.run_all()
    table = PublishedDatasets.load(world.binding.project, world.job, "all", ["b"]).to_arrow()
    assert [table[name].type for name in ("n", "later")] == [pa.int8(), pa.float64()]


def longer(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"value": "x" * 10_000_000}


@pytest.mark.parametrize("writer", ["csv", "jsonl"])
def test_rows_of_ten_megabytes_are_written_and_read_as_text(world: World, writer: str) -> None:
    longer = {"type": "function", "function": f"{__name__}:longer"}
    packed = {"type": writer, "compression": "gzip"}  # keeps the disk of tests small
    world.parts = {"writer": packed, "fork": ONE_BRANCH, "converters": [longer]}
    world.datasets = {"a": {"rows": 8}}
    world.run_all()
    table = PublishedDatasets.load(world.binding.project, world.job, "all").to_arrow()
    assert sorted(table["id"].to_pylist()) == list(range(8))
    assert {len(text) for text in table["value"].to_pylist()} == {10_000_000}


def test_folder_names_come_back_as_they_were_written(world: World) -> None:
    select = "id, '00' || id % 3 as \"my code\", id::decimal(9,2) as amount, date '2020-01-01' as day"
    levels = ["my code", "amount", "day", {"sql": "id % 2", "name": "a/b"}]
    world.parts = {
        "converters": [{"type": "sql", "select": select}],
        "writer": {"type": "parquet", "partition_by": levels},
        "output": {"path": "env=test"},
        "fork": ONE_BRANCH,
    }
    world.datasets = {"a": {"rows": 6}}
    world.run_all()
    table = PublishedDatasets.load(world.binding.project, world.job, "all").to_arrow().sort_by("id")
    assert table.column_names == ["id", "my code", "amount", "day", "a/b"]
    assert table["my code"].to_pylist() == ["000", "001", "002"] * 2
    assert table["a/b"].to_pylist() == ["0", "1"] * 3
    assert table["day"].type == pa.date32()
    assert table["amount"].to_pylist() == [f"{number}.00" for number in range(6)]


def test_format_that_pyarrow_does_not_read_is_told(world: World) -> None:
    branches = [{"name": "all", "writer": {"type": "orc"}}, {"name": "other", "writer": {"type": "avro"}}]
    world.parts = {"fork": {"branches": branches}}
    world.run_all()
    published = [PublishedDatasets.load(world.binding.project, world.job, name) for name in ("all", "other")]
    assert published[0].to_arrow().num_rows == 55
    with pytest.raises(UsageError, match="pyarrow reads no avro files"):
        published[1].to_arrow()
    world.parts = {"writer": {"type": "csv", "compression": "zstd"}, "fork": ONE_BRANCH}
    world.datasets = {"z": {"rows": 5}}
    world.run_all()
    with pytest.raises(UsageError, match="read no text packed with zstd"):
        PublishedDatasets.load(world.binding.project, world.job, "all", ["z"]).to_arrow()


def test_datasets_whose_types_differ_are_told(world: World) -> None:
    world.parts = {"fork": ONE_BRANCH}
    world.run_all()
    world.parts |= {"converters": [{"type": "sql", "select": "dataset = 'a' as id"}]}
    world.datasets = {"a": {"rows": 60}}
    world.run_all()
    with pytest.raises(UsageError, match=r"have no types in common: .*id"):
        PublishedDatasets.load(world.binding.project, world.job, "all", ["a", "c c"]).to_arrow()


class ForbiddenIOManager(dg.IOManager):
    """Stands for a user's own default: nothing of ours may go through it."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        raise AssertionError(f"{context.step_key} wrote through the user's IO manager")

    def load_input(self, context: dg.InputContext) -> Any:
        raise AssertionError(f"{context.step_context.step.key} read through the user's IO manager")


def test_users_own_io_manager_is_left_alone(world: World) -> None:
    world.add_partitions("a", "b/1", "c c")
    seen: list[Any] = []
    asset = downstream(PublishedDatasets, seen, PARTITIONS)
    mine = dg.IOManagerDefinition.hardcoded_io_manager(ForbiddenIOManager())
    defs = dg.Definitions.merge(world.definitions, dg.Definitions([asset], resources={"io_manager": mine}))
    job = defs.resolve_implicit_global_asset_job_def()
    chosen = [world.binding.keys["all"], asset.key]
    assert job.execute_in_process(instance=world.instance, partition_key="a", asset_selection=chosen).success
    assert [got.rows for got in seen] == [30]


def test_every_branch_is_loaded_by_the_manager_of_its_job(world: World) -> None:
    (assets,) = (one for one in world.definitions.assets or () if isinstance(one, dg.AssetsDefinition))
    assert {assets.get_io_manager_key_for_asset_key(key) for key in assets.keys} == {"gobblin_numbers"}
    with dg.build_resources({"manager": assets.resource_defs["gobblin_numbers"]}) as resources:
        assert isinstance(resources.manager, CommitStepIOManager)


def test_large_whole_numbers_beside_null_are_no_floats_in_pandas() -> None:
    large = 2**53 + 1
    table = pa.table({"id": [large, None], "in": [[large, None], None], "n": [1, None], "all": [large, large]})
    published: Any = SimpleNamespace(to_arrow=lambda: table)
    frame = PublishedDatasets.to_pandas(published)
    assert (frame["id"][0], list(frame["in"][0])) == (large, [large, None])
    assert {name: str(frame[name].dtype) for name in ("n", "all")} == {"n": "float64", "all": "int64"}
