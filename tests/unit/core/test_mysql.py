"""Settings of sessions on MySQL and MariaDB."""

from __future__ import annotations

import re

from gobblin_dagster.core.mysql import SESSION, SESSION_THAT_WRITES


def test_sessions_that_write_are_set_as_others_are_and_read_only_what_is_committed() -> None:
    names, others = (set(re.findall(r"(\w+) = ", " ".join(each))) for each in (SESSION, SESSION_THAT_WRITES))
    assert others >= names >= {"sql_mode", "sql_select_limit", "time_zone", "system_versioning_asof"}
    assert SESSION[-1] == SESSION_THAT_WRITES[-1] == "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
