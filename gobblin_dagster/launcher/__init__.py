"""Dagster's runs in a warm worker: `GobblinWarmRunLauncher`, named in `dagster.yaml`.

Dagster's web server and daemon import this package, so it imports no engine. The worker executes a run by
`orchestration.in_worker`.

Read first: `run_launcher.py`.
"""

from gobblin_dagster.launcher.run_launcher import GobblinWarmRunLauncher

__all__ = ["GobblinWarmRunLauncher"]
