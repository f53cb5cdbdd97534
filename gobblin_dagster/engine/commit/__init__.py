"""The commit protocol: publish staged files, exactly once. Imports up to `state`.

It knows neither Spark nor Dagster, so that crash tests run thousands of schedules a minute. Read first: `committer.py`.
`policy.py` chooses what is published, `build.py` makes the commit sequence, `steps/` holds its steps, `step_runner.py`
runs them, `undo.py` undoes them, `manifest.py` writes the file list for readers without a state store.
"""

from gobblin_dagster.engine.commit.build import build_sequence
from gobblin_dagster.engine.commit.codec import decode_sequence, encode_sequence
from gobblin_dagster.engine.commit.committer import Committer, Recovery
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.commit.listener import CommitListener, FanOutListener, SilentListener, crash_at
from gobblin_dagster.engine.commit.manifest import fill_manifests, read_manifest
from gobblin_dagster.engine.commit.policy import CommitPolicyName, Decision, choose_publishable
from gobblin_dagster.engine.commit.steps import RenameFileStep, register_commit_step, step_from_json, step_to_json

__all__ = [
    "CommitListener",
    "CommitPolicyName",
    "Committer",
    "Decision",
    "FanOutListener",
    "LeaseKeeper",
    "Recovery",
    "RenameFileStep",
    "SilentListener",
    "build_sequence",
    "choose_publishable",
    "crash_at",
    "decode_sequence",
    "encode_sequence",
    "fill_manifests",
    "read_manifest",
    "register_commit_step",
    "step_from_json",
    "step_to_json",
]
