"""`gobblin state`: show and change watermarks and totals of datasets. Each command is imported when it is called."""

from __future__ import annotations

import typer

from gobblin_dagster.cli.lazy import LazyCommand, function_of, lazy_group

_CHANGES = "state.change"
COMMANDS = {
    "list": LazyCommand(
        "List the datasets that were published, with their watermarks.",
        function_of(
            "state.list",
            "list_states",
            "gobblin state list",
            "gobblin state list flights --select 'AA-*' --output json",
        ),
    ),
    "show": LazyCommand(
        "Show all that is known of one dataset: ranges, gaps, startpoints, totals and files of its newest snapshot.",
        function_of(
            "state.show", "show", "gobblin state show AA-EWR", "gobblin state show AA-EWR --job flights --output json"
        ),
    ),
    "set": LazyCommand(
        "Move a dataset's watermark: data before it counts as read, data after it is read (again).",
        function_of(
            _CHANGES, "set_watermark", "gobblin state set AA-EWR 2013-01-15 --reason 'bad files, read again' --dry-run"
        ),
    ),
    "reset": LazyCommand(
        "Forget what was read of a dataset: the next run reads it from the beginning. Published files stay.",
        function_of(_CHANGES, "reset", "gobblin state reset AA-EWR --reason 'the table was recreated' --yes"),
    ),
    "restore": LazyCommand(
        "Bring a damaged state back to what the dataset's last commit made true, and clear a damaged lease.",
        function_of(_CHANGES, "restore", "gobblin state restore AA-EWR"),
    ),
    "retry": LazyCommand(
        "Read again, alone, the ranges that were given up after they failed (`execution.retry_failed`).",
        function_of(_CHANGES, "retry", "gobblin state retry AA-EWR --reason 'the files are repaired' --dry-run"),
    ),
    "history": LazyCommand(
        "Explain every change of a dataset's watermark: by which run or person, from where to where.",
        function_of(_CHANGES, "history", "gobblin state history AA-EWR --output json"),
    ),
    "runs": LazyCommand(
        "List the last runs of a job and how they ended; idle runs leave no record.",
        function_of(
            "state.runs", "runs", "gobblin state runs flights", "gobblin state runs --dataset AA-EWR --output json"
        ),
    ),
    "export": LazyCommand(
        "Print states with their whole history as JSON lines, for `gobblin state import` into a store of any kind.",
        function_of(_CHANGES, "export_states", "gobblin state export > state.jsonl"),
    ),
    "import": LazyCommand(
        "Bring exported states into this project's store. Datasets that have another history here are left alone.",
        function_of(_CHANGES, "import_states", "gobblin state import state.jsonl --dry-run"),
    ),
    "diff": LazyCommand(
        "Compare this project's store with an export: the commits of each dataset.",
        function_of(_CHANGES, "diff", "gobblin state diff state.jsonl"),
    ),
}
"""The commands by name; the first line of each command's own help is the same."""

app = typer.Typer(
    cls=lazy_group(COMMANDS), rich_markup_mode=None, add_completion=False, help="See and change watermarks of datasets."
)


@app.callback()
def _group() -> None:
    """See and change watermarks of datasets."""
