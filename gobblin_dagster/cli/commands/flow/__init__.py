"""`gobblin flow`: flows of the service. Each command goes over REST and is imported when it is called."""

from __future__ import annotations

import typer

from gobblin_dagster.cli.lazy import LazyCommand, function_of, lazy_group

_EXAMPLE = "gobblin flow create shop/orders --template FS:///shop/to-lake.template"
COMMANDS = {
    "templates": LazyCommand(
        "List the templates that flows can be made of, with their parameters.",
        function_of("flow.catalog", "templates", "gobblin flow templates"),
    ),
    "create": LazyCommand(
        "Create a flow: without a schedule it runs once, now.",
        function_of(
            "flow.change",
            "create",
            f"{_EXAMPLE} --set dataset='orders*'",
            f"{_EXAMPLE} --set dataset='orders*' --schedule '0 0/5 * ? * *'",
        ),
    ),
    "update": LazyCommand(
        "Change a flow: what is not named stays as it is.",
        function_of("flow.change", "update", "gobblin flow update shop/orders --set dataset='orders_eu*'"),
    ),
    "explain": LazyCommand(
        "Show the jobs that a flow would become, or why it cannot; stores nothing.",
        function_of("flow.change", "explain", f"{_EXAMPLE} --set dataset='orders*'".replace("create", "explain")),
    ),
    "run": LazyCommand(
        "Run a flow now, and follow it to its end.",
        function_of("flow.executions", "run", "gobblin flow run shop/orders", "gobblin flow run shop/orders --no-wait"),
    ),
    "list": LazyCommand(
        "List flows.",
        function_of("flow.catalog", "list_flows", "gobblin flow list", "gobblin flow list --search orders"),
    ),
    "show": LazyCommand(
        "Show one flow: its templates, values, schedule and next fire times.",
        function_of("flow.catalog", "show", "gobblin flow show shop/orders"),
    ),
    "status": LazyCommand(
        "Show the newest execution of a flow, with its jobs.",
        function_of("flow.executions", "status", "gobblin flow status shop/orders"),
    ),
    "executions": LazyCommand(
        "List the newest executions of a flow.",
        function_of("flow.executions", "executions", "gobblin flow executions shop/orders --count 20"),
    ),
    "logs": LazyCommand(
        "Show what happened in an execution.",
        function_of(
            "flow.executions", "logs", "gobblin flow logs shop/orders", "gobblin flow logs shop/orders --follow"
        ),
    ),
    "datasets": LazyCommand(
        "Show how far the datasets of a flow are: watermark, lag, rows, startpoint, open commit sequences.",
        function_of("flow.datasets", "datasets", "gobblin flow datasets shop/orders"),
    ),
    "startpoint": LazyCommand(
        "Say where the next run of a dataset begins, or remove what was said.",
        function_of(
            "flow.datasets",
            "startpoint",
            "gobblin flow startpoint shop/orders orders_eu 2013-01-15 --reason 'bad files, read again'",
            "gobblin flow startpoint shop/orders orders_eu --remove --reason 'set by mistake'",
        ),
    ),
    "kill": LazyCommand(
        "End an execution, or one job of it: what is whole is committed.",
        function_of(
            "flow.executions",
            "kill",
            "gobblin flow kill shop/orders",
            "gobblin flow kill shop/orders --job shop__orders__to_lake",
        ),
    ),
    "resume": LazyCommand(
        "Run again what failed, was cancelled or did not run in an execution.",
        function_of("flow.executions", "resume", "gobblin flow resume shop/orders"),
    ),
    "pause": LazyCommand(
        "Let a flow's schedule rest.", function_of("flow.change", "pause", "gobblin flow pause shop/orders")
    ),
    "unpause": LazyCommand(
        "Let a flow's schedule go on; fire times in between are not caught up.",
        function_of("flow.change", "unpause", "gobblin flow unpause shop/orders"),
    ),
    "unschedule": LazyCommand(
        "End a flow's schedule, and keep the flow.",
        function_of("flow.change", "unschedule", "gobblin flow unschedule shop/orders"),
    ),
    "delete": LazyCommand(
        "Take a flow out of the catalog; executions that run go on.",
        function_of("flow.change", "delete", "gobblin flow delete shop/orders --yes"),
    ),
    "history": LazyCommand(
        "List all versions of a flow: who changed what, and when.",
        function_of("flow.catalog", "history", "gobblin flow history shop/orders"),
    ),
    "diff": LazyCommand(
        "Show what differs between two versions of a flow.",
        function_of("flow.catalog", "diff", "gobblin flow diff shop/orders 1 3"),
    ),
    "rollback": LazyCommand(
        "Make an older version of a flow the newest.",
        function_of("flow.change", "rollback", "gobblin flow rollback shop/orders 1"),
    ),
    "export": LazyCommand(
        "Write flows to a folder, one file each.",
        function_of("flow.files", "export", "gobblin flow export flows"),
    ),
    "apply": LazyCommand(
        "Make the service's flows equal to those of a folder: shows what changes, then does exactly that.",
        function_of("flow.files", "apply", "gobblin flow apply flows --dry-run", "gobblin flow apply flows --prune"),
    ),
}

app = typer.Typer(
    cls=lazy_group(COMMANDS),
    rich_markup_mode=None,
    add_completion=False,
    help="Create, run, watch and change flows of the service.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Hold the commands; they are imported when they are called."""
