"""Apache Gobblin's ingestion, declared in files, run on Spark, seen in Dagster.

Packages, from the bottom to the top; each imports only from those before it:
- `core`: values and protocols.
- `storage`: files on local disk, S3, HDFS and others, with the guarantees that a commit needs.
- `database`: engines, dialects and migrations of SQL databases, without tables.
- `spec`: what users declare in job files.
- `state`: the state store: watermarks, commit sequences, leases, run history.
- `constructs`: built-in sources, formats, converters, policies, forks, writers and publishers.
- `engine`: plan, run and commit.
- `warm`: the worker that keeps Python and Spark between commands.
- `testing`: what people need who test constructs of their own, and the crash laboratory of the commit protocol.
- `launcher`: starts Dagster's runs in a warm worker.
- `orchestration`: the Dagster layer.
- `demo`: a project on real flights.
- `cli`: the command line. `face`: the same for Python.
- `api`: what users import; its names are names of this package too, each loaded when it is asked for.

Read first: `core/work_unit.py` for the words, then `engine/run/job_run.py` for one run from recovery to report.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gobblin_dagster.api import *  # noqa: F403  # the names of `api`, and no others

__version__ = "0.1.0"


if not TYPE_CHECKING:  # a type checker would take any name for one that there is

    def __getattr__(name: str) -> Any:
        # Not imported above: the command line and Spark's workers import this package first of all.
        return getattr(import_module("gobblin_dagster.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *dir(import_module("gobblin_dagster.api"))])
