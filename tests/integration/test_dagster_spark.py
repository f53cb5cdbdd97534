"""The demo's job as Dagster runs it: on real Spark, with real flights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.demo.downstream import flight_delays
from gobblin_dagster.demo.project import add_day, write_demo
from gobblin_dagster.engine.project import open_project
from gobblin_dagster.orchestration import GobblinSparkResource, PublishedDatasets, build_definitions
from gobblin_dagster.orchestration import metadata as md
from tests.unit.engine.jobs import job_spec, project, run
from tests.unit.engine.snapshots.test_wider_types import WIDENED, publish_wider

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ALL = dg.AssetKey(["nyc", "flights", "all"])


def latest(instance: dg.DagsterInstance, partition: str) -> dict[str, object]:
    wanted = dg.AssetRecordsFilter(ALL, asset_partitions=[partition])
    event = instance.fetch_materializations(wanted, limit=1).records[0].asset_materialization
    assert event is not None
    return {name: value.value for name, value in event.metadata.items()}


def test_demo_runs_on_spark_and_its_delays_are_computed_downstream(tmp_path: Path) -> None:
    demo = tmp_path / "demo"
    write_demo(demo)
    settings = demo / "gobblin.yaml"
    settings.write_text(settings.read_text().replace("start: when_needed", "start: always"))
    runner = GobblinSparkResource.of_project(open_project(demo)).runner
    defs = dg.Definitions.merge(build_definitions(demo), dg.Definitions([flight_delays]))
    with dg.DagsterInstance.ephemeral() as instance:
        before = runner.is_started
        assert defs.resolve_job_def("flights_job").execute_in_process(instance=instance).success
        assert (before, runner.is_started) == (False, True)
        keys = instance.get_dynamic_partitions("flights.dataset_urn")
        assert keys == ["9E-JFK", "B6-JFK", "EV-EWR", "HA-JFK", "UA-EWR", "WN-LGA"]
        first = latest(instance, "EV-EWR")
        assert (first[md.LOW], first[md.ACTUAL_HIGH]) == ("2013-02-06", "2013-02-13")
        assert first[md.ROWS_READ] == int(str(first[md.ROWS])) + int(str(first[md.QUARANTINED])) == 866

        job = defs.resolve_implicit_global_asset_job_def()
        chosen = [flight_delays.key]
        assert job.execute_in_process(instance=instance, partition_key="EV-EWR", asset_selection=chosen).success
        (record,) = instance.fetch_materializations(flight_delays.key, limit=10).records
        assert record.asset_materialization is not None
        assert record.asset_materialization.metadata["flights"].value == first[md.ROWS]

        add_day(demo)
        assert defs.resolve_job_def("flights_job").execute_in_process(instance=instance).success
        assert latest(instance, "EV-EWR")[md.LOW] == "2013-02-13"

    project = open_project(demo)
    published = PublishedDatasets.load(project, project.job("flights"), "all", ["EV-EWR", "HA-JFK"])
    with_urn = dataclasses.replace(published, urn_column="urn")
    frame = with_urn.to_spark(GobblinSparkResource.of_project(project).session)
    assert frame.count() == published.rows == published.to_arrow().num_rows
    assert (dict(frame.dtypes)["flight_date"], frame.dtypes[-1]) == ("date", ("urn", "string"))


def test_downstream_asset_takes_a_spark_frame(tmp_path: Path) -> None:
    from pyspark.sql import DataFrame

    demo = tmp_path / "demo"
    write_demo(demo)
    seen = []

    def carriers(flights: DataFrame) -> None:
        seen.append(flights.select("carrier").distinct().count())

    carriers.__annotations__["flights"] = DataFrame  # text under `from __future__`, and the name is local
    asset = dg.asset(ins={"flights": dg.AssetIn(key=ALL)})(carriers)
    defs = dg.Definitions.merge(build_definitions(demo), dg.Definitions([asset]))
    with dg.DagsterInstance.ephemeral() as instance:
        assert defs.resolve_job_def("flights_job").execute_in_process(instance=instance).success
        job = defs.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, asset_selection=[asset.key]).success
    assert seen == [6]


def test_idle_run_starts_no_spark(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "gobblin.yaml").write_text("project: idle\nspark: {conf: {spark.app.name: never_started}}\n")
    (tmp_path / "jobs" / "numbers.yaml").write_text(
        "job: numbers\n"
        "source: {type: 'gobblin_dagster.testing.rows_source:RowsSource', datasets: {a: {rows: 0}}}\n"
        "extract: {namespace: test, table: numbers}\n"
        "output: {path: lake}\n"
    )
    runner = GobblinSparkResource.of_project(open_project(tmp_path)).runner
    with dg.DagsterInstance.ephemeral() as instance:
        job = build_definitions(tmp_path).resolve_job_def("numbers_job")
        assert job.execute_in_process(instance=instance).success
        assert list(instance.get_dynamic_partitions("numbers.dataset_urn")) == ["a"]
    assert not runner.is_started


def test_spark_reads_text_formats_and_folders_as_they_were_written(tmp_path: Path) -> None:
    select = (
        "id, '00' || id as code, case id when 1 then '' when 2 then 'say \"a\\b\",\nc' else value end as text, "
        "id::decimal(9,3) as amount, timestamp '2020-01-01 12:00:00.5' as wall, date '2020-01-01' as day, "
        "case id when 3 then 'nan'::double when 4 then '-inf'::double else id / 7 end as ratio, "
        "{'ratios': [ratio], 'text': 'nan'} as parts"
    )
    writers: list[dict[str, Any]] = [
        {"type": "parquet", "partition_by": ["code"]},
        {"type": "csv", "partition_by": ["code"], "delimiter": ";"},
        {"type": "csv", "header": False},
        {"type": "jsonl"},
    ]
    job = job_spec(
        {"a": {"rows": 20}},
        converters=[{"type": "sql", "select": select}],
        fork={
            "branches": [
                {
                    "name": f"b{at}",
                    "writer": writer,
                    "converters": [{"type": "drop", "columns": ["parts"]}] if writer["type"] == "csv" else [],
                }
                for at, writer in enumerate(writers)
            ]
        },
    )
    bound = project(tmp_path, job)
    run(tmp_path, job)
    session = GobblinSparkResource.of_project(bound).session
    frames = [
        PublishedDatasets.load(bound, job, f"b{at}").to_spark(session).orderBy("id") for at in range(len(writers))
    ]
    columns = ["id", "code", "text", "amount", "wall", "day", "ratio"]
    truth = [repr(tuple(row)) for row in frames[0].select(*columns, "parts").collect()]
    assert truth[3].startswith("(3, '003',")
    assert "nan, Row(ratios=[nan], text='nan')" in truth[3]
    for frame in frames:
        both = [*columns, *(["parts"] if "parts" in frame.columns else [])]
        assert frame.select(*both).dtypes == frames[0].select(*both).dtypes
        found = [repr(tuple(row)) for row in frame.select(*both).collect()]
        assert all(one.startswith(other.removesuffix(")")) for one, other in zip(truth, found, strict=True))


def test_spark_reads_older_files_in_the_wider_types(tmp_path: Path) -> None:
    job = publish_wider(tmp_path, "parquet", "orc")
    bound = project(tmp_path, job)
    session = GobblinSparkResource.of_project(bound).session
    for branch in job.fork.branches:
        frame = PublishedDatasets.load(bound, job, branch.name).to_spark(session).orderBy("id")
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        columns = {*frame.columns} - {"id"}
        assert len(columns) >= 6
        assert {name: [row[name] for row in rows] for name in columns} == {name: WIDENED[name] for name in columns}
