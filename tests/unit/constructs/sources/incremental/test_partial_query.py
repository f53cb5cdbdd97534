"""Which queries surely leave rows out."""

from __future__ import annotations

from gobblin_dagster.constructs.sources.incremental.partial_query import cut_of

CUT = """
select * from o limit 5 for update
(select * from o limit 5)
select * from o limit 5, 10
select * from o offset 5
select * from (select * from o order by id limit 5) t
select * from (select * from o order by id limit 5) as t(a, b) where a > 3
select * from ((select * from o limit 5)) t
select a is distinct from b as c from (select * from o limit 5) t
with t as (select * from o limit 5) select * from t
with t(a, b) as materialized (select * from o limit (5)) select a from t order by a
with t as (select * from o limit 5), u as (select * from t where a in (1, 2)) select * from u
with "t x" as (select * from o limit 5) select * from "t x"
with recursive t as (select 1 as n union all select n + 1 from t limit 5) select * from t
(select * from a limit 5) union all (select * from b limit 5)
select * from a union all select * from (select * from b limit 5) x
select * from (select * from o fetch next row only) t
select * from (select top (5) * from o) t
"""
WHOLE = """
select id, (select name from c where c.id = o.id limit 1) as n from o -- limit 5
select * from o, lateral (select * from l where l.o = o.id order by at desc limit 1) x
select * from o join (select rate from r order by day desc limit 1) r on true
select * from (select rate from r order by day desc limit 1) r cross join o
select * from (select rate from r limit 1) as r left join o on true
select * from (select rate from r limit 1) natural join o
select * from (select rate from r limit 1) r, o
with cfg as (select * from c limit 1) select * from o, cfg
with cfg as (select * from c limit 1) select * from o where o.x > (select y from cfg)
with recursive t as (select 1 as n union all select n + 1 from t) select * from t
select * from (select * from o where exists (select 1 from b limit 1)) t
select * from o order by (select 1 limit 1)
select 'limit 5', o.limit, topic, ')' from o
select * from o limit all
select * from o offset 0
"""


def test_limit_that_cuts_all_rows_is_found_and_no_other() -> None:
    assert [query for query in CUT.strip().splitlines() if cut_of(query) is None] == []
    assert [query for query in WHOLE.strip().splitlines() if cut_of(query) is not None] == []
    assert cut_of("with t as (select * from o limit (2 + 3)) select * from t;") == "limit (2 + 3)"
