from __future__ import annotations

import sqlalchemy as sa

from gobblin_dagster.database.dialect import insert, is_among, listed

TABLE = sa.Table("people", sa.MetaData(), sa.Column("name", sa.Text, primary_key=True), sa.Column("age", sa.Integer))


def connection() -> sa.Connection:
    engine = sa.create_engine("sqlite://")
    TABLE.metadata.create_all(engine)
    return engine.connect()


def test_insert_knows_what_to_do_on_conflict() -> None:
    with connection() as there:
        for age in (1, 2):
            adding = insert(there, TABLE).values(name="anna", age=age)
            there.execute(adding.on_conflict_do_update(index_elements=["name"], set_={"age": age}))
        assert there.execute(sa.select(TABLE)).all() == [("anna", 2)]


def test_list_of_any_length_is_one_parameter_and_sorted() -> None:
    names = [f"name '{number:05}" for number in range(40_000)]
    with connection() as there:
        found = list(there.execute(sa.select(listed(there, names[::-1]))).scalars())
        there.execute(sa.insert(TABLE), [{"name": names[7]}, {"name": "another"}])
        among = there.execute(sa.select(TABLE.c.name).where(is_among(there, TABLE.c.name, names))).all()
    assert found == names
    assert among == [(names[7],)]
