"""Servers that storms use, and commands in processes that may be killed."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from gobblin_dagster.cli.program import run_command
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.property.targets.model import Row
from tests.services.hdfs import hadoop_jars, running_hdfs
from tests.services.json_api import Asked, Reply, running_api
from tests.services.mariadb import mariadb_binary, running_mariadb
from tests.services.postgres import binaries, running_postgres
from tests.services.s3 import running_s3

SERVERS = ("postgres", "mariadb", "s3", "hdfs")
_PAGE = 5
_HANGS_S = 300
_COMMANDS = ("check", "clean", "commit", "compact", "plan", "quarantine", "rollback", "run", "show", "startpoint")


class Api:
    """Lists of rows of each storm, in pages."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, list[Row]]] = {}
        self.url = ""

    def reply(self, asked: Asked) -> Reply:
        _, storm, name = asked.path.split("/")
        rows = [row for row in self.rows[storm][name] if row.seq >= int(asked.params.get("since", 0))]
        rows = rows[::-1] if asked.params.get("sort") == "desc" else rows
        first = (int(asked.params.get("page", 1)) - 1) * _PAGE
        return Reply({"data": [row._asdict() for row in rows[first : first + _PAGE]]})


@dataclass
class World:
    """Makes places on servers that are there."""

    api: Api
    places: dict[str, Callable[[], str]]
    """URL of a new database, bucket or folder, by server."""
    processes: Any = None
    """Where commands that are killed are forked; None kills none."""
    has_spark: bool = False

    def run(self, root: Path, given: list[str], environment: dict[str, str], seconds: float | None) -> int | None:
        """Run a command in a process, which is killed after these seconds; return its exit code.

        None if it hangs.
        """
        process = self.processes.Process(target=_command, args=(root, given, environment))
        process.start()
        process.join(seconds or _HANGS_S)
        hangs = process.is_alive() and seconds is None
        process.kill()
        process.join()
        return None if hangs else process.exitcode


@contextmanager
def world(*wanted: str) -> Iterator[World]:
    """Start the servers that are wanted; `processes` allows kills, `spark` has all rows read by Spark."""
    with ExitStack() as stack:
        api, places = Api(), {}
        api.url = stack.enter_context(running_api(api.reply)).url
        if "s3" in wanted:
            s3 = stack.enter_context(running_s3())
            stack.enter_context(mock.patch.dict(os.environ, s3.environment))
            places["s3"] = lambda: f"s3://{s3.new_bucket()}/lake"
        if "postgres" in wanted:
            folder = binaries()
            assert folder is not None
            postgres = stack.enter_context(running_postgres(folder))
            places["postgres"] = lambda: postgres.url(postgres.new_database())
        if "mariadb" in wanted:
            binary = mariadb_binary()
            assert binary is not None
            mariadb = stack.enter_context(running_mariadb(binary))
            places["mariadb"] = lambda: mariadb.url(mariadb.new_database(), "root", "")
        if "hdfs" in wanted:
            jars, numbers = hadoop_jars(), itertools.count()
            assert isinstance(jars, Path)
            hdfs = stack.enter_context(running_hdfs(jars))
            places["hdfs"] = lambda: f"{hdfs.url}/storm{next(numbers)}/lake"
        made = World(api, places, has_spark="spark" in wanted)
        if "processes" in wanted:
            made.processes = multiprocessing.get_context("forkserver")
            made.processes.set_forkserver_preload(
                [
                    __name__,
                    *(f"gobblin_dagster.cli.commands.{one}" for one in _COMMANDS),
                    "pyarrow.dataset",
                    "deltalake",
                ]
            )
        yield made


def without_spark() -> Any:
    """Let commands run work units in their own process."""
    return mock.patch("gobblin_dagster.cli.spark.LazySparkRunner", side_effect=lambda *settings: InlineRunner())


def _command(root: Path, given: list[str], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    with (root / "out").open("w") as out, (root / "err").open("w") as err, without_spark():  # noqa: SIM117 - too long
        with redirect_stdout(out), redirect_stderr(err):
            code = run_command(["-C", str(root), *given])
    os._exit(code)
