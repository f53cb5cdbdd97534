"""The crash table with the services that can be started here: PostgreSQL, an S3 server, HDFS.

    python -m tests.services.crash_table --storms 2000

What cannot be started is named, and its rows are left out. All options are those of
`gobblin_dagster.testing.protocol.crash_table`.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from gobblin_dagster.testing.protocol import crash_table
from tests.services.hdfs import hadoop_jars, running_hdfs
from tests.services.postgres import binaries, running_postgres
from tests.services.s3 import running_s3


def main(arguments: list[str]) -> int:
    """Start what there is, print the table, end what was started."""
    with ExitStack() as services:
        if folder := binaries():
            arguments += ["--postgres", services.enter_context(running_postgres(folder)).url("postgres")]
        else:
            _left_out("PostgreSQL", "no server is installed here")
        s3 = services.enter_context(running_s3())
        os.environ |= s3.environment  # for the processes that are started from here
        arguments += ["--s3", f"s3://{s3.new_bucket()}"]
        jars = hadoop_jars()
        if isinstance(jars, str):
            _left_out("HDFS", jars)
        else:
            arguments += ["--hdfs", services.enter_context(running_hdfs(jars)).url]
        return crash_table.main(arguments)


def _left_out(what: str, why: str) -> None:
    sys.stderr.write(f"No rows for {what}: {why}.\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
