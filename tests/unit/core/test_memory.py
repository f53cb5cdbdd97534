"""Errors of a process without memory name its limit."""

from __future__ import annotations

import resource
import subprocess

from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.memory import AddressSpace


def test_limit_of_the_process_is_named_with_what_sets_it() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 45, hard))
    try:
        failure = describe_failure(MemoryError())
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert "may use 33,554,432 MB, set by `ulimit -v`" in failure.message
    assert "MB of it are in use" in failure.message


def _soft() -> int:
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def test_programs_that_start_under_our_limit_get_the_one_of_before() -> None:
    """A JVM does not start with it: Spark may start while an expression is evaluated."""
    before, ours = _soft(), 1 << 45
    space = AddressSpace()
    space.lower(ours, "a test")
    try:
        with space.lifted():
            assert subprocess.run(["sh", "-c", "ulimit -v"], capture_output=True, check=True, text=True).stdout == (
                "unlimited\n" if before < 0 else f"{before >> 10}\n"
            )
            with space.lifted():
                space.lower(2 * ours, "a test")
            assert _soft() == before, "another program is started still"
            assert space.outer_limit == before
        assert _soft() == 2 * ours
    finally:
        space.restore()
    assert _soft() == before


def test_limit_that_ends_while_a_program_starts_stays_away() -> None:
    before, space = _soft(), AddressSpace()
    space.lower(1 << 45, "a test")
    with space.lifted():
        space.restore()
    assert _soft() == before


def test_forked_process_has_no_limit_of_threads_that_it_lacks() -> None:
    before, space = _soft(), AddressSpace()
    space.lower(1 << 45, "a test")
    space._starting = 1
    space.forget()
    assert _soft() == before
    with space.lifted():
        pass
    assert _soft() == before
