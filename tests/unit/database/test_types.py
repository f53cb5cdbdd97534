from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import sqlalchemy as sa

from gobblin_dagster.database.types import UtcDateTime

TABLE = sa.Table("seen", sa.MetaData(), sa.Column("at", UtcDateTime))


def test_instant_of_any_zone_comes_back_in_utc_and_null_as_null() -> None:
    engine = sa.create_engine("sqlite://")
    TABLE.metadata.create_all(engine)
    noon = datetime(2026, 11, 21, 12, tzinfo=timezone(timedelta(hours=2)))
    with engine.connect() as there:
        there.execute(sa.insert(TABLE), [{"at": noon}, {"at": None}])
        found = list(there.execute(sa.select(TABLE.c.at)).scalars())
        stored = list(there.execute(sa.text("SELECT at FROM seen")).scalars())
    assert found == [noon, None]
    assert found[0].tzinfo is UTC
    assert stored[0].startswith("2026-11-21 10:00")
