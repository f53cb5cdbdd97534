"""Every metadata key that materializations and checks carry. `docs/reference/metadata.md` says the same, and a test compares."""

from __future__ import annotations

LOW = "gobblin/low"
"""Watermark from which was read, inclusive; text."""
EXPECTED_HIGH = "gobblin/expected_high"
"""Watermark up to which the plan wanted to read, exclusive; text."""
ACTUAL_HIGH = "gobblin/actual_high"
"""The dataset's watermark after the commit, exclusive; text."""
MOVED = "gobblin/moved"
"""Whether the commit moved the watermark; false where a run only confirms that nothing was new."""
ROWS = "dagster/row_count"
"""Rows published to the branch. Dagster's own key, so that its pages show it beside the asset."""
ROWS_READ = "gobblin/rows_read"
"""Rows read from the source, for all branches together."""
BYTES = "gobblin/bytes"
"""Bytes published to the branch."""
FILES = "gobblin/files"
"""Files published to the branch."""
QUARANTINED = "gobblin/rows_quarantined"
"""Rows published to the dataset's quarantine, of all branches together."""
REJECTED = "gobblin/rejected/"
"""Begins one key per row-level policy that applies to the branch: rows that broke it."""
QUEUE = "gobblin/queue"
"""How the queue before the branch was used, summed over work units; JSON, in batches and seconds; only where there are several
branches. A fill ratio near 1 means that the branch is slower than what comes before it."""
SNAPSHOT = "gobblin/snapshot"
"""Number of the dataset's snapshot; only with a commit."""
COMMIT_ID = "gobblin/commit_id"
"""Id of the commit sequence, part of every published file's name; only with a commit."""
RUN_ID = "gobblin/run_id"
"""Run that made the commit: Dagster's run id, or that of a run on the command line."""
DATASET_URN = "gobblin/dataset_urn"
"""The dataset.urn as the source wrote it; the partition key is its percent-encoding."""
PATH = "gobblin/path"
"""Folder of the branch's files of the dataset."""
FAILURES = "gobblin/failures"
"""Why parts of the dataset were not committed, where the commit policy publishes what succeeded; text."""
DETAIL = "gobblin/detail"
"""On a check: expected and got, in one line."""
ROWS_FAILED = "gobblin/rows_failed"
"""On a check of a row-level policy: rows that broke it."""
RUN_STATUS = "gobblin/run_status"
"""On the failure of a run: `partial` if something of it was committed, `busy` if other runs hold all that was left undone,
else `failed`. So is a run with a failed work unit if the job says so (`commit.failed_units_fail_run`). The word is that of the
exit code of `gobblin run`; Dagster knows no success in part."""
FAILED_DATASETS = "gobblin/failed_datasets"
"""On the failure of a run: dataset.urns of which nothing, or not all, was committed; JSON."""
QUARANTINED_DATASETS = "gobblin/quarantined_datasets"
"""On the failure of a run: dataset.urns whose commit sequence waits for a person; JSON."""

ALL = {
    name: value
    for name, value in sorted(globals().items())
    if name.isupper() and isinstance(value, str) and "/" in value
}
"""All keys by the name of their constant."""
