"""What all commands about flows share: the way to the service, and their arguments."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gobblin_dagster.cli.context import project_root
from gobblin_dagster.client import FlowClient
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.spec.project import TOKEN_FILE

FlowArgument = Annotated[
    str, typer.Argument(metavar="GROUP/NAME", help="The flow; the first slash parts group and name.")
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="GOBBLIN_SERVICE_URL",
        help="Where the service answers; default: as the project's gobblin.yaml says.",
        show_default=False,
    ),
]


def connect(ctx: typer.Context, url: str | None) -> FlowClient:
    """Return a client of the service that a command is about.

    The token is that of `GOBBLIN_SERVICE_TOKEN`, or of the project's own service.
    """
    token = os.environ.get("GOBBLIN_SERVICE_TOKEN")
    if url is not None:
        return FlowClient(url, token)
    root = project_root(ctx)
    service = load_project(root).service
    if token is None and (root / TOKEN_FILE).is_file():
        token = (root / TOKEN_FILE).read_text(encoding="ascii").strip()
    host = f"[{service.host}]" if ":" in service.host else service.host
    return FlowClient(f"http://{host}:{service.port}", token)
