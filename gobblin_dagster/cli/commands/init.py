"""`gobblin init`: make a project folder that runs at once, on the demo's data or on the user's own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gobblin_dagster.cli.context import examples
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.secrets import passwords
from gobblin_dagster.core.utils.text import printable
from gobblin_dagster.demo.project import refuse_in_use, write_demo, write_service

if TYPE_CHECKING:
    from gobblin_dagster.demo.own_data import FoundJob

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class Template(StrEnum):
    """Content of a new project."""

    DEMO = "demo"


class SourceKind(StrEnum):
    """Where the user's own data is."""

    FILES = "files"
    QUERY = "query"
    KAFKA = "kafka"
    REST = "rest"


_WHERE = {
    SourceKind.FILES: "the folder of your files",
    SourceKind.QUERY: "the database's URL as ${VARIABLE}, or sqlite:///file.db",
    SourceKind.KAFKA: "host:port of a broker",
    SourceKind.REST: "the URL of a list of JSON objects",
}


@app.command(
    epilog=examples(
        "gobblin init demo --template demo && cd demo && gobblin run",
        "gobblin init lakehouse --source files --from exports",
        "gobblin init shop --source query --from '${SHOP_URL}'",
        "gobblin init issues --source rest --from https://api.example.org/issues --header Authorization=API_TOKEN",
        "gobblin init --service shop && cd shop && gobblin serve",
    )
)
def init(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="Folder to make; must not hold anything yet.")],
    template: Annotated[
        Template | None, typer.Option(help="`demo`: real flights, two branches, a quarantine. Nothing is asked.")
    ] = None,
    service: Annotated[
        bool, typer.Option("--service", help="A project for `gobblin serve`: templates of flows instead of jobs.")
    ] = False,
    source: Annotated[
        SourceKind | None, typer.Option("--source", help="Write jobs for your own data, and show their plan.")
    ] = None,
    where: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="A folder, a database's URL, a broker, a list's URL.")
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="NAME=VARIABLE", help="For `rest`: a header from the environment; may be repeated."
        ),
    ] = None,
) -> None:
    """Make a project folder that runs at once.

    With --source, look at your own data and write jobs that read it: datasets, types, watermark columns and keys are
    found. The plan shows what a run would read. On a terminal, init asks for what is not given; without one, a project
    without --source is the demo.
    """
    if template is None and not service and (source is None or not where) and sys.stdin.isatty():
        refuse_in_use(name)
        source, where = _asked(source, where)
    if source is not None or where:
        _init_own(name, source, where, header or [])
        return
    files = write_service(name) if service else {Template.DEMO: write_demo}[template or Template.DEMO](name)
    shown = [str(path.relative_to(name)) for path in files]
    here = printable(str(name))
    typer.echo(f"Made {here} with {len(files)} files: {', '.join(shown[:4])}{', ...' if len(shown) > 4 else ''}")
    typer.echo(f"Next: cd {here} && gobblin {'serve' if service else 'run'}")


def _asked(source: SourceKind | None, where: str) -> tuple[SourceKind | None, str]:
    """Ask for the source and its place, what is missing of both; (None, "") for the demo."""
    if source is None:
        answers = [*(() if where else Template), *SourceKind]
        answer = typer.prompt(
            f"Which data ({', '.join(answers)})",
            default=None if where else Template.DEMO.value,
            value_proc=lambda text: _one_of(answers, text.strip().lower()),
            err=True,
        )
        if answer == Template.DEMO:
            return None, ""
        source = SourceKind(answer)
    return source, where or typer.prompt(f"Place ({_WHERE[source]})", value_proc=str.strip, err=True)


def _one_of(answers: Sequence[str], answer: str) -> str:
    if answer not in answers:
        raise typer.BadParameter(f"expected one of {', '.join(answers)}, got {answer[:40]!r}")
    return answer


def _init_own(name: Path, source: SourceKind | None, where: str, header: list[str]) -> None:
    """Write a project for the user's own data, and print the plan of each job."""
    # The demo needs neither the engine nor a database.
    from gobblin_dagster.cli.each_job import for_each_job  # noqa: PLC0415
    from gobblin_dagster.cli.render.console import console  # noqa: PLC0415
    from gobblin_dagster.cli.render.plan import print_plan  # noqa: PLC0415
    from gobblin_dagster.cli.spark import plan_only_spark  # noqa: PLC0415
    from gobblin_dagster.demo.own_data import plain_name, write_project  # noqa: PLC0415
    from gobblin_dagster.engine.project import open_project  # noqa: PLC0415
    from gobblin_dagster.engine.run.job_run import plan_job  # noqa: PLC0415

    if source is None or not where:
        places = "; ".join(f"`--source {kind}`: {place}" for kind, place in _WHERE.items())
        raise UsageError(problem="`--source` and `--from` belong together.", hint=f"--from is, for {places}.")
    refuse_in_use(name)
    jobs = _found_jobs(name, source, where, header)
    for path in write_project(name, plain_name(name.resolve().name), jobs):
        typer.echo(f"Wrote {printable(str(path))}")
    here = printable(str(name))
    code = 0
    if source is not SourceKind.KAFKA:  # a broker need not be there yet
        for job in jobs:
            typer.echo("\n".join(f"  {printable(remark)}" for remark in job.remarks))
        project = open_project(name)
        out = console(sys.stdout)
        with plan_only_spark(project) as spark:
            plans = for_each_job(project.jobs, lambda job: plan_job(project, job, spark=spark))
        for plan in plans.results:
            print_plan(out, plan)
        code = plans.code
        if plans.interrupted:
            raise typer.Exit(code)
    if code:
        typer.echo(f"Next: cd {here}, correct the job files until gobblin plan has no error, then gobblin run")
        raise typer.Exit(code)
    typer.echo(f"Next: cd {here}, look at the job files, then gobblin run")


def _found_jobs(name: Path, source: SourceKind, where: str, header: list[str]) -> list[FoundJob]:
    from gobblin_dagster.demo import own_data, own_list, own_tables  # noqa: PLC0415 - as above

    namespace = own_data.plain_name(name.resolve().name)
    if source is SourceKind.FILES:
        return own_data.jobs_of_folder(Path(where).expanduser().resolve(), namespace)
    if source is SourceKind.KAFKA:
        return [own_data.job_of_broker(where, namespace)]
    if source is SourceKind.REST:
        if not where.startswith(("https://", "http://")):
            raise UsageError(problem=f"{where[:80]!r} is no URL.", hint="Expected https://host/path of a list.")
        headers = dict(_header(text) for text in header)
        return [own_list.job_of_list(where, namespace, headers)]
    variable = _VARIABLE.fullmatch(where)
    if variable is None and passwords(where):
        raise UsageError(
            problem="The URL holds a password, which a job file must not.",
            hint="Put the URL into a variable of the environment: `--from '${SHOP_URL}'`.",
        )
    url = os.environ.get(variable[1], "") if variable else where
    if "://" not in url:
        problem = f"The variable {variable[1]} is not set." if variable else f"{where[:80]!r} is no database's URL."
        raise UsageError(problem=problem, hint="Expected postgresql://user:password@host:5432/database.")
    base_dir = Path().resolve()
    if not variable and url.startswith("sqlite:///") and not url.startswith("sqlite:////"):
        where = url = f"sqlite:///{base_dir / url.removeprefix('sqlite:///')}"
    return own_tables.jobs_of_database(url, where, base_dir, namespace)


def _header(text: str) -> tuple[str, str]:
    name, _, variable = text.partition("=")
    if not re.fullmatch(r"[\w-]+=\w+", text) or variable not in os.environ:
        problem = f"The variable {variable} is not set." if variable else "`--header` names no variable."
        raise UsageError(
            problem=problem,
            hint="Put the whole header into the environment (`export API_TOKEN='Bearer ...'`), and name the variable: "
            "`--header Authorization=API_TOKEN`.",
        )
    return name, variable
