"""Dagster's web server as an application, by Dagster's internals; apart from `_internal`, which each run imports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_webserver.app import create_app_from_workspace_process_context
from starlette.types import ASGIApp


@contextmanager
def webserver(workspace: Path, prefix: str) -> Iterator[ASGIApp]:
    """Yield Dagster's web pages as an application; the command `dagster-webserver` listens on TCP ports only.

    Args:
        workspace: a `workspace.yaml`.
        prefix: path under which the pages are reached, such as `/dagster`.
    """
    with dg.DagsterInstance.get() as instance:
        # The figures of `dagster-webserver`: statement time-out in ms, seconds and overflow of the pool.
        instance.optimize_for_webserver(15_000, 3_600, 20)
        target = WorkspaceFileTarget(paths=[str(workspace)])
        with WorkspaceProcessContext(instance, version=dg.__version__, workspace_load_target=target) as context:
            yield create_app_from_workspace_process_context(context, prefix)
