"""All metadata keys of materializations and checks. A test compares them with `docs/reference/metadata.md`."""

from __future__ import annotations

LOW = "gobblin/low"
"""Watermark at which reading began, inclusive; text."""
EXPECTED_HIGH = "gobblin/expected_high"
"""Watermark up to which the run planned to read, exclusive; text."""
ACTUAL_HIGH = "gobblin/actual_high"
"""The dataset's watermark after the commit, exclusive; text."""
LAG_S = "gobblin/lag_s"
"""Seconds from the dataset's watermark to the time of the commit; only for watermarks that are times."""
LAG_POSITIONS = "gobblin/lag_positions"
"""Positions up to `gobblin/expected_high` that the commit left out; only for watermarks that are numbers."""
RECENT = "gobblin/recent_runs"
"""The dataset in the newest runs of its job that worked on it: rows read, watermark and lag, with a bar for rows and
lag. The lag is the time from the watermark to the begin of the run, or the positions that it left; Markdown, newest
first; not in events of the sweep sensor."""
MOVED = "gobblin/moved"
"""Whether the commit moved the watermark; false if the run found nothing new and the last commit is reported again."""
ROWS = "dagster/partition_row_count"
"""Rows that the commit published to the branch. It is a key of Dagster, whose pages show it for the partition; its
`dagster/row_count` would be shown as the count of the whole asset."""
ROWS_READ = "gobblin/rows_read"
"""Rows read from the source, for all branches together."""
BYTES = "gobblin/bytes"
"""Bytes published to the branch."""
FILES = "gobblin/files"
"""Files published to the branch."""
QUARANTINED = "gobblin/rows_quarantined"
"""Rows published to the dataset's quarantine, of all branches together."""
REJECTED = "gobblin/rejected/"
"""Prefix of one key per row-level policy that applies to the branch: the number of rows that broke it."""
REJECTED_ROWS = "gobblin/rejected_rows"
"""The first rows published to the dataset's quarantine: what rejected them, its rule, file and row number, and the
command that shows the rows; Markdown. Never values of rows; not in events of the sweep sensor, and for the first 100
such datasets of a run."""
DURATION_S = "gobblin/duration_s"
"""Seconds that the work units of the dataset took, added up: they may have run side by side; only for a run."""
QUEUE = "gobblin/queue"
"""Use of the queue before the branch, summed over work units; JSON, in batches and seconds; only with several
branches. A fill ratio near 1 means that the branch is slower than the fork."""
SNAPSHOT = "gobblin/snapshot"
"""Number of the dataset's snapshot; only with a commit."""
COMMIT_ID = "gobblin/commit_id"
"""Id of the commit sequence, part of every published file's name; only with a commit."""
RUN_ID = "gobblin/run_id"
"""Id of the run that made the commit: a run id of Dagster, or of a run on the command line."""
DATASET_URN = "gobblin/dataset_urn"
"""The dataset.urn as the source wrote it; the partition key is its percent-encoding."""
PATH = "gobblin/path"
"""Folder of the branch's files of the dataset."""
COLUMNS = "dagster/column_schema"
"""Columns of the branch with their Arrow types, as the writer got them; Dagster's pages show them as a table."""
LINEAGE = "dagster/column_lineage"
"""Which columns of the source the columns are made of, as far as the converters tell; only for a job whose file names
one folder, table, topic or API. Dagster's pages follow it from column to column."""
URI = "dagster/uri"
"""Under which Dagster's catalog finds the branch: the folder of `gobblin/path` as a URI, or `asset.uri` of the job
file, which the definition of the asset has too."""
STARTPOINT = "gobblin/startpoint"
"""The startpoints that the commit consumed: where it began, who set them and why; text; only if there were any."""
FAILURES = "gobblin/failures"
"""Why parts of the dataset were not committed, if the commit policy publishes the other parts; for an observation of a
failed partition: why nothing was committed; text."""
LATE = "gobblin/late"
"""For an observation of the sensor for `asset.sla`: why the dataset is late; text."""
DETAIL = "gobblin/detail"
"""For a check: what was expected and what was found, in one line."""
ROWS_FAILED = "gobblin/rows_failed"
"""For a check of a row-level policy: the number of rows that broke it."""
DATA_VERSION = "dagster/data_version"
"""Tag of materializations and not an entry of their metadata: the commit id. It stays the same if a run reports the
last commit again, so `AutomationCondition.data_version_changed()` tells new data from a commit that is told again."""
SPARK_PAGES = "gobblin/spark_pages"
"""Address of Spark's pages, which end with Spark; at the output of `extract`, and at the failure of a run."""
SPARK_HISTORY = "gobblin/spark_history"
"""Address of the run's Spark in the pages of a history server; in the same places."""
PROFILE = "gobblin/profile"
"""For the output of the op `extract`, or the error of a failed run: seconds by phase (`plan`, `start`, `extract`,
`convert`, `write`, `commit`, `report`), rows and bytes per second, and skew, as `gobblin run --profile` has; JSON."""
RUN_STATUS = "gobblin/run_status"
"""For a failed run: `partial` if something was committed; `busy` if other runs hold all datasets that were left; else
`failed`. A run with a failed work unit is `failed` if the job says so (`commit.failed_units_fail_run`). `gobblin run`
has an exit code for each word; Dagster has no status for partial success."""
FAILED_DATASETS = "gobblin/failed_datasets"
"""For a failed run: dataset.urns that were committed in part or not at all; JSON."""
QUARANTINED_DATASETS = "gobblin/quarantined_datasets"
"""For a failed run: dataset.urns whose commit sequence waits for a person; JSON."""
FLOW = "gobblin/flow"
"""For an asset of a flow of the service: `GROUP/NAME`."""
FLOW_VERSION = "gobblin/flow_version"
"""For an asset of a flow: the version of the flow from which the asset was made."""
FLOW_LINK = "gobblin/flow_link"
"""For an asset of a flow: where the service shows the flow; a URL."""
FLOW_TEMPLATES = "gobblin/flow_templates"
"""For an asset of a flow: URIs of the flow's templates, with commas between them."""
FLOW_SCHEDULE = "gobblin/flow_schedule"
"""For an asset of a flow that has a schedule: its Quartz cron."""

ALL = {
    name: value
    for name, value in sorted(globals().items())
    if name.isupper() and isinstance(value, str) and "/" in value
}
"""All keys by the name of their constant."""
