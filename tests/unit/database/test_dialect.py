from __future__ import annotations

import sqlalchemy as sa

from gobblin_dagster.database.dialect import as_list, insert, is_among, listed, texts

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
        among = there.execute(sa.select(TABLE.c.name).where(is_among(TABLE.c.name, names))).all()
        made_once = sa.select(TABLE.c.name).where(is_among(TABLE.c.name, texts("names")), TABLE.c.age.is_(None))
        again = [there.execute(made_once, {"names": as_list(some)}).all() for some in (names, ["another"], [])]
    assert found == names
    assert among == [(names[7],)]
    assert again == [[(names[7],)], [("another",)], []]
    assert "json_each(?)) AND" in str(made_once.compile(dialect=there.dialect))  # with `= 1`, no index would be used
