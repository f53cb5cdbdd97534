"""Dagster's pages, daemon, code and runs in one process: `python -m tests.services.dagster_browser_server FOLDER PORT`.

What `dagster dev` does with one process for each of them, so that a whole session in a browser costs one import. Runs
begin at once. Serves the `definitions.py` of the folder, which must name nothing but `defs` as its definitions.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import dagster as dg
import uvicorn
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon import controller
from dagster._daemon.daemon import BackfillDaemon, SensorDaemon
from dagster_webserver.app import create_app_from_workspace_process_context

INSTANCE = """\
telemetry: {enabled: false}
nux: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
run_launcher: {module: dagster._core.launcher.sync_in_memory_run_launcher, class: SyncInMemoryRunLauncher}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
"""


def serve(folder: Path, port: int) -> None:
    """Serve until the process is ended."""
    target = LoadableTargetOrigin(
        executable_path=sys.executable, python_file=str(folder / "definitions.py"), working_directory=str(folder)
    )
    workspace = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(target, location_name="gobblin"))
    home = folder / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    # Dagster looks for new backfills every 30 s.
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 1
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        controller.daemon_controller_from_instance(
            instance, workspace, gen_daemons=lambda _: [SensorDaemon({}), BackfillDaemon({})]
        ),
        WorkspaceProcessContext(instance, workspace) as context,
    ):
        app = create_app_from_workspace_process_context(context)
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve(Path(sys.argv[1]), int(sys.argv[2]))
