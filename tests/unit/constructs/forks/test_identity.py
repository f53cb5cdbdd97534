from __future__ import annotations

from gobblin_dagster.constructs.forks.identity import IdentityForkOperator
from tests.unit.constructs.samples import CONTEXT, batch

ROWS = batch({"region": ["eu", "us", None, "eu"], "size": [1, 20, 30, 40]})


def test_identity_gives_every_row_to_every_branch() -> None:
    fork = IdentityForkOperator(IdentityForkOperator.Options(), CONTEXT, branches=["a", "b", "c"])
    assert list(fork.fork_schema(ROWS.schema)) == [True, True, True]
    assert list(fork.fork_batch(ROWS)) == [True, True, True]
