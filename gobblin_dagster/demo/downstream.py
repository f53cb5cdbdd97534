"""An asset downstream of the demo's job: average delay per dataset. Shows how to load published data."""

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

DATASETS = dg.DynamicPartitionsDefinition(name="flights.dataset_urn")
"""The job's partitions: this asset has one per dataset too."""


@dg.asset(
    key=["nyc", "flight_delays"],
    ins={"flights": dg.AssetIn(key=["nyc", "flights", "all"])},
    partitions_def=DATASETS,
    group_name="flights",
    kinds={"pyarrow"},
    description="Mean delay at departure, in minutes, per day of one dataset.",
    automation_condition=dg.AutomationCondition.eager(),
)
def flight_delays(context: dg.AssetExecutionContext, flights: pa.Table) -> dg.MaterializeResult[None]:
    """Average the published flights of one dataset, which never include half a commit."""
    days = (
        flights.group_by("flight_date")
        .aggregate([("dep_delay", "mean"), ("dep_delay", "count")])
        .sort_by("flight_date")
    )
    rows = [
        dg.TableRecord({"day": str(day["flight_date"]), "mean_delay": day["dep_delay_mean"]})
        for day in days.to_pylist()
    ]
    mean = pc.mean(flights["dep_delay"]).as_py()
    context.log.info(f"{flights.num_rows} flights, {mean} minutes late on average")
    return dg.MaterializeResult(
        metadata={
            "flights": flights.num_rows,
            "mean_delay_minutes": mean,
            "by_day": dg.MetadataValue.table(
                rows,
                schema=dg.TableSchema([dg.TableColumn("day", "string"), dg.TableColumn("mean_delay", "float")]),
            ),
        }
    )
