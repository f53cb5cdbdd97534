"""Groups of commands that are imported only when called: listing them, or calling one, does not import the others."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from gobblin_dagster.cli.context import examples
from gobblin_dagster.cli.import_interrupt import raise_interrupt_of_import


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """The help of a command, as the list of commands shows it, and a function that imports the command."""

    help: str
    load: Callable[[], Any]


def app_of(module: str) -> Callable[[], Any]:
    """Return a function that imports the command (or group) `app` of a module of this package."""
    return lambda: typer.main.get_command(importlib.import_module(f"gobblin_dagster.cli.commands.{module}").app)


def function_of(module: str, function: str, *lines: str) -> Callable[[], Any]:
    """Return a function that imports a command, with its examples: a function of a module of this package."""

    def load() -> Any:
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        found = getattr(importlib.import_module(f"gobblin_dagster.cli.commands.{module}"), function)
        app.command(epilog=examples(*lines))(found)
        return typer.main.get_command(app)

    return load


class WholeHelpGroup(TyperGroup):
    """Lists each command with the whole first sentence of its help, on as many lines as needed."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=1000)) for name, one in self.commands.items()])


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return the class of a group with these commands, for `typer.Typer(cls=...)`."""

    class LazyGroup(WholeHelpGroup):
        """Lists the commands without importing them."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands.update({name: TyperCommand(name, help=lazy.help) for name, lazy in commands.items()})

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
            """Return the real command for the one that is called."""
            name, command, rest = super().resolve_command(ctx, args)
            return name, command and load_lazy(commands, str(name)), rest

    return LazyGroup


def load_lazy(commands: Mapping[str, LazyCommand], name: str) -> Any:
    """Import a command by name."""
    command = commands[name].load()
    raise_interrupt_of_import()
    command.name = name
    _hide_types(command)
    return command


def _hide_types(command: Any) -> None:
    """Remove Python's types (`JOB <list[str]>`) from the help of a command and of its subcommands."""
    for argument in command.params:
        if argument.param_type_name == "argument":
            vars(argument).update(display_type_rich=lambda ctx: None)
    for below in getattr(command, "commands", {}).values():
        _hide_types(below)
