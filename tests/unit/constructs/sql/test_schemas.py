from __future__ import annotations

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, batch


def _select(text: str) -> SqlSelect:
    return SqlSelect(text, "converter 'test'", CONTEXT)


def test_schema_is_the_same_for_every_batch() -> None:
    given = pa.schema(
        [
            ("seen", pa.timestamp("s", "America/New_York")),
            ("large", pa.large_string()),
            ("plain", pa.string()),
            ("naive", pa.timestamp("ms")),
            ("bytes", pa.large_binary()),
        ]
    )
    select = _select("*, seen + INTERVAL 1 SECOND AS later, upper(plain) AS loud, 1.50 AS price")
    schema = select.schema(given)
    assert schema.field("seen").type == pa.timestamp("us", "America/New_York")
    assert schema.field("large").type == pa.large_string()
    assert schema.field("naive").type == pa.timestamp("ms")
    assert schema.field("bytes").type == pa.large_binary()
    assert schema.field("loud").type == pa.string()
    empty = given.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema=given)]
    nulls = pa.RecordBatch.from_pylist([{}, {}], schema=given)
    full = pa.RecordBatch.from_pylist(
        [{"seen": 1, "large": "a", "plain": "c", "naive": 1000, "bytes": b"x"}], schema=given
    )
    for one in (empty[0], nulls, full):
        result = select.run(one)
        assert result.schema.equals(schema)
        assert result.num_rows == one.num_rows
    assert select.run(full).column("seen")[0].value == 1_000_000


@pytest.mark.parametrize("expression", ["*", "a", "b"])
def test_columns_that_differ_in_case_only_are_refused(expression: str) -> None:
    rows = batch({"A": [1], "a": [2], "b": [3]})
    with pytest.raises(
        ConvertError, match="columns 'A' and 'a' differ in case only, which SQL does not see; `rename` one"
    ):
        _select(expression).run(rows)
    assert _select("*").run(batch({"É": [1], "é": [2]})).to_pydict() == {"É": [1], "é": [2]}


def test_nanoseconds_of_a_duration_are_not_cut() -> None:
    whole = batch({"d": pa.array([5000], pa.duration("ns"))})
    assert _select("d").run(whole).column(0)[0].as_py().nanoseconds == 5000
    with pytest.raises(ConvertError, match="would lose data"):
        _select("d").run(batch({"d": pa.array([1], pa.duration("ns"))}))
    with pytest.raises(ConvertError, match="column 'i': an interval in SQL has microseconds"):
        _select("i").run(batch({"i": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))
    assert _select("1 AS one").run(batch({"d": pa.array([1], pa.duration("ns"))})).num_rows == 1


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (
            "a::UHUGEINT AS v",
            "column 'v': no format has a type for UHUGEINT; cast it, e.g. to VARCHAR",
        ),  # 2^128 - 1: -1
        ("[{'x': '12:00:00+02'::TIMETZ}] AS v", "no format has a type for TIME WITH TIME ZONE"),  # 12:00
        ("'101'::BIT AS v", "no format has a type for BIT"),
        ("a::VARIANT AS v", "no format has a type for VARIANT"),
        ("170141183460469231731687303715884105727::HUGEINT AS v", "column 'v': Decimal value 1701.* precision"),
        ("if(a = 1, 'infinity', '2026-01-01')::TIMESTAMPTZ AS v", "column 'v': infinity is no time in Arrow"),
        ("'-infinity'::DATE AS v", "column 'v': infinity is no time"),
        ("['24:00:00'::TIME] AS v", "column 'v': .*86400000000 is not within the acceptable range"),
    ],
)
def test_values_that_would_become_others_are_refused(expression: str, problem: str) -> None:
    with pytest.raises(ConvertError, match=problem):
        _select(expression).run(batch({"a": [1]}))
    whole = _select(
        "list_sum([a]) AS n, {'bit': ['12:00:00'::TIME], 'e': 'BIT'::ENUM('BIT')} AS s, [1, 2]::INTEGER[2] AS l"
    )
    assert whole.run(batch({"a": [1]})).num_rows == 1
