"""Dagster's default executor gives each step a process of its own: the run must end as in one process."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from gobblin_dagster.orchestration import gobblin_assets
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.partitions import RANGE_TAGS
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec, project

ROOT = "GOBBLIN_TEST_ROOT"
PROCESSES = dg.multiprocess_executor.configured({"start_method": {"forkserver": {"preload_modules": [__name__]}}})
"""A process for each step, which finds this module imported: by default, each step imports all again."""


def definitions() -> dg.JobDefinition:
    """Return a job of a gobblin asset and one below it, for each process that loads it."""
    root = Path(os.environ[ROOT])
    job = job_spec({"a": {"rows": 30}, "b/1": {"rows": 5}})
    binding = JobBinding.of(project(root, job), job)

    @dg.asset(
        name="below",
        ins={"rows": dg.AssetIn(binding.keys["all"])},
        partitions_def=binding.partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
        output_required=False,
    )
    def below(rows: pa.Table) -> None:
        (root / "seen.txt").write_text(str(rows.num_rows))

    made = gobblin_assets(binding.project, job, runner=InlineRunner())
    defs = dg.Definitions([made, below], jobs=[dg.define_asset_job("both", selection="*", executor_def=PROCESSES)])
    return defs.resolve_job_def("both")


def test_assets_below_run_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT, str(tmp_path))
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        job = definitions()
        (key, *_) = sorted(set(job.asset_layer.executable_asset_keys) - {dg.AssetKey("below")})
        instance.add_dynamic_partitions("numbers.dataset_urn", ["a", "b/1"])
        tags = dict(zip(RANGE_TAGS, ("a", "b/1"), strict=True))
        result = dg.execute_job(dg.reconstructable(definitions), instance=instance, tags=tags)
        assert result.success
        assert not [event for event in result.all_events if event.is_step_skipped]
        wanted = dg.AssetRecordsFilter(key, asset_partitions=["a"])
        newest = instance.fetch_materializations(wanted, limit=1).records[0].asset_materialization
        assert newest is not None
        assert newest.metadata[md.ACTUAL_HIGH].value == "30"
        assert newest.metadata[md.MOVED].value is True
    assert (tmp_path / "seen.txt").read_text() == "35"
