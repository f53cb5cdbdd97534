"""Ids of runs: which ones may be chosen."""

from __future__ import annotations

import os
import pwd
from datetime import UTC, datetime

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.ids import check_run_id, new_run_id, who


@pytest.mark.parametrize("run_id", ["a", "7", "flow-7.load_2", "A" * 100])
def test_plain_name_is_a_run_id(run_id: str) -> None:
    check_run_id(run_id)


@pytest.mark.parametrize("run_id", ["", ".", "..", ".hidden", "-x", "a/b", "a b", "a\n", "ä", "a:b", "A" * 101])
def test_name_that_is_no_plain_name_of_a_folder_is_refused(run_id: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        check_run_id(run_id)


def test_ids_of_our_own_are_such_names() -> None:
    check_run_id(new_run_id(datetime(2026, 11, 21, tzinfo=UTC)))


def test_user_id_without_a_name_is_a_person_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def no_name(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", no_name)
    assert who().startswith(f"uid-{os.getuid()}@")
