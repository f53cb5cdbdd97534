"""Which test files run in the same process, so that a dear service is started once and not once per process."""

from __future__ import annotations

import re

from xdist.scheduler import LoadFileScheduling

TOGETHER = {
    "Kafka broker": r"tests/integration/kafka/",
    "HDFS and S3": r"tests/(contract/test_st(ate|ep|orage)|integration/test_(\w+_)?(s3|hdfs|far)(_|\.))",
    "MariaDB": r"tests/integration/test_\w+_mariadb",
    "Spark inside of the process": r"tests/(integration/test_(spark_\w+|dagster_spark)|e2e/test_(from_python|read_))",
}
"""Service -> pattern of the files that share it; any other file stands alone."""


class PlacedByService(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives the tests of a file, and the files that share a dear service, to one process."""

    def _split_scope(self, nodeid: str) -> str:
        shared = (service for service, files in TOGETHER.items() if re.match(files, nodeid))
        return next(shared, super()._split_scope(nodeid))
