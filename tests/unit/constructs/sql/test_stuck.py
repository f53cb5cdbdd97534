"""A statement that DuckDB does not stop ends its process, if the process runs nothing else."""

from __future__ import annotations

import subprocess
import sys

from gobblin_dagster.constructs.sql.stuck import end_process

_PROGRAM = """
import pyarrow as pa
from gobblin_dagster.constructs.sql import limits, stuck
from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.secrets import remember

remember({"s3cr3t-word": "${WORD}"})
limits.TIME_LIMIT_S = 0.2
stuck.let_process_end()
expression = "levenshtein(repeat(n, 300000) || 's3cr3t-word', repeat(n, 300000) || 'x') AS d"
select = SqlSelect(expression, "converter 'sql'", ConstructContext("j", ".", dataset_urn="a"))
select.run(pa.RecordBatch.from_pydict({"n": ["a"]}))
"""


def test_statement_that_cannot_be_interrupted_ends_its_process_and_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith("converter 'sql' of dataset 'a': \"levenshtein(repeat(n, 300000) || '${WORD}'")
    assert said.endswith("took more than 0.2 s for one batch and cannot be interrupted; its process was ended")


_COMMAND = """
from gobblin_dagster.cli import program
from gobblin_dagster.constructs.sql.stuck import end_process

program.run_command = lambda _: end_process("the expression", 60) or 0
program.program()
"""


def test_command_that_plans_or_checks_with_such_a_statement_ends_too() -> None:
    done = subprocess.run([sys.executable, "-c", _COMMAND], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("the expression took more than 60 s")


def test_process_that_does_other_things_too_goes_on() -> None:
    end_process("an expression", 0.2)  # returns
