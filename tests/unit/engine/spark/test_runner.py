"""SparkRunner, with a session whose JVM has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from gobblin_dagster.core.errors import SparkLostError
from gobblin_dagster.engine.spark.runner import SparkRunner


class Py4JNetworkError(Exception):
    """As py4j's, which is known by its name."""


def test_session_whose_jvm_has_ended_is_told_as_that_and_not_as_a_refused_connection() -> None:
    def refuse(*_: object) -> NoReturn:
        try:
            raise Py4JNetworkError("Answer from Java side is empty")
        except Py4JNetworkError:
            raise ConnectionRefusedError(111, "Connection refused")  # noqa: B904 - as py4j raises it

    session: Any = SimpleNamespace(conf=SimpleNamespace(set=refuse))
    with pytest.raises(SparkLostError, match="Spark has ended: its JVM crashed or was killed"):
        SparkRunner(session, owns_session=True).open_session()
