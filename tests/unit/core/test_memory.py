"""Errors of a process without memory name its limit."""

from __future__ import annotations

import resource

from gobblin_dagster.core.failure import describe_failure


def test_limit_of_the_process_is_named_with_what_sets_it() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 45, hard))
    try:
        failure = describe_failure(MemoryError())
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert "may use 33,554,432 MB, set by `ulimit -v`" in failure.message
    assert "MB of it are in use" in failure.message
