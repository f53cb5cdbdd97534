"""Which test files run in the same process, so that a dear service is started once and not once per process; and which
run at the same time, so that one process computes while the others wait for servers."""

from __future__ import annotations

import re
from functools import cached_property

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

TOGETHER = {
    "Kafka broker": r"tests/integration/kafka/",
    "HDFS and S3": r"tests/(contract/test_st(ate|ep|orage)|integration/test_(\w+_)?(s3|hdfs|far)(_|\.))",
    "MariaDB": r"tests/integration/test_\w+_mariadb",
    "Spark inside of the process": r"tests/(integration/test_(spark_\w+|dagster_spark)|e2e/test_(from_python|read_))",
}
"""Service -> pattern of the files that share it; any other file stands alone."""


WAITING = (*TOGETHER, "tests/e2e/", "tests/integration/")
"""How the names of those begin that wait for servers, and for processes that they start, half of their time."""


class PlacedByService(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives the tests of a file, and the files that share a dear service, to one process.

    All processes but one get what waits. Else all would wait at the same time, and later all would compute, more of
    them than there are cores.
    """

    def _split_scope(self, nodeid: str) -> str:
        shared = (service for service, files in TOGETHER.items() if re.match(files, nodeid))
        return next(shared, super()._split_scope(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a process the next tests that suit it."""
        others = sum(self._waits(other) for other in self.assigned_work if other is not node)
        wanted = others < max(1, len(self.assigned_work) - 1)
        scope = next(
            (name for name in self.workqueue if name.startswith(WAITING) is wanted), next(iter(self.workqueue))
        )
        tests = self.workqueue.pop(scope)
        # What is done is forgotten: it would be counted again after each test.
        begun = {name: left for name, left in self.assigned_work.get(node, {}).items() if not all(left.values())}
        self.assigned_work[node] = {**begun, scope: tests}
        node.send_runtest_some([self._numbers[test] for test, is_done in tests.items() if not is_done])

    def _waits(self, node: WorkerController) -> bool:
        """Return whether a process has tests that wait."""
        work = self.assigned_work[node].items()
        return any(scope.startswith(WAITING) and not all(tests.values()) for scope, tests in work)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The place of each test in what every process collected; xdist would search 16,000 names for each test."""
        return {test: number for number, test in enumerate(self.collection)}
