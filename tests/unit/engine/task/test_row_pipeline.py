"""Stages: bad rows of converters, shares of rejected rows, and that every row is accounted for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import ConvertError, DataQualityError
from gobblin_dagster.engine.task.row_pipeline import RowPipeline
from gobblin_dagster.spec.job import BranchSpec, ConverterSpec, OnViolation, RowPolicySpec, TaskPolicySpec
from tests.unit.constructs.samples import CONTEXT, chunk, pylist

NUMBERS = {"type": "columns", "columns": {"n": "int64"}}
BAD = chunk({"n": ["1", "x", "3", "y", "z", "6"]}, first_row=11)


class Rejected:
    """Keeps what a stage sends to the quarantine."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, str, str]] = []

    def __call__(self, given: Chunk, name: str, reason: str, stage: str) -> None:
        self.rows += [(row, name, reason, stage) for row in given.rows.to_pylist()]


def _stage(
    converters: list[dict[str, Any]], policies: list[dict[str, Any]] | None = None, rejected: Rejected | None = None
) -> RowPipeline:
    return RowPipeline(
        "pre_fork",
        [ConverterSpec.model_validate(spec) for spec in converters],
        [RowPolicySpec.model_validate(spec) for spec in policies or []],
        CONTEXT,
        rejected or Rejected(),
    )


def _run(stage: RowPipeline, given: Chunk) -> list[dict[str, Any]]:
    stage.open(given.batch.schema)
    rows = pylist(stage.process(given))
    stage.finish()
    return rows


def test_bad_rows_are_skipped_alone_and_counted() -> None:
    stage = _stage([NUMBERS | {"on_error": "skip"}])
    assert _run(stage, BAD) == [{"n": 1}, {"n": 3}, {"n": 6}]
    assert (stage.rejected, stage.rows_filtered, stage.rows_quarantined) == ({"columns": 3}, 0, 0)


def test_bad_rows_are_quarantined_with_row_and_reason() -> None:
    rejected = Rejected()
    stage = _stage([NUMBERS | {"on_error": "quarantine", "name": "numbers"}], rejected=rejected)
    assert len(_run(stage, BAD)) == 3
    assert [(row, name) for row, name, *_ in rejected.rows] == [(12, "numbers"), (14, "numbers"), (15, "numbers")]
    assert rejected.rows[0][2:] == ("row 12, column 'n': expected int64, got 'x'", "pre_fork")
    assert stage.rows_quarantined == 3


def test_more_bad_rows_than_allowed_fail_with_the_row_that_was_too_much() -> None:
    stage = _stage([NUMBERS | {"on_error": "skip", "max_errors": 2}])
    with pytest.raises(ConvertError, match=r"at most 2 bad rows .*row 15, column 'n': expected int64, got 'z'"):
        _run(stage, BAD)


def test_exactly_the_allowed_bad_rows_pass() -> None:
    assert len(_run(_stage([NUMBERS | {"on_error": "skip", "max_errors": 3}]), BAD)) == 3


def test_bad_row_fails_the_stage_unless_said_otherwise() -> None:
    with pytest.raises(ConvertError, match="row 12, column 'n': expected int64, got 'x'"):
        _run(_stage([NUMBERS]), BAD)


def test_rows_that_filters_remove_are_not_counted_as_bad() -> None:
    stage = _stage([{"type": "sql", "where": "n <> '6'"}, NUMBERS | {"on_error": "skip"}])
    assert _run(stage, BAD) == [{"n": 1}, {"n": 3}]
    assert (stage.rows_filtered, stage.rejected) == (1, {"columns": 3})


def test_share_of_rejected_rows_is_judged_at_the_end() -> None:
    rule = {"type": "sql", "rule": "n < 10", "name": "small", "on_violation": "drop"}
    numbers = chunk({"n": list(range(8, 12))}, first_row=1)
    assert len(_run(_stage([], [rule | {"max_share": 0.5}]), numbers)) == 2
    stage = _stage([], [rule | {"max_share": 0.49}])
    stage.open(numbers.batch.schema)
    assert len(pylist(stage.process(numbers))) == 2
    with pytest.raises(
        DataQualityError, match=r"at most 49\.0000% of rows .* 2 of 4 \(50\.0000%\), first in/flights.csv row 3"
    ):
        stage.finish()


def test_share_counts_only_rows_that_reached_the_policy() -> None:
    first = {"type": "sql", "rule": "n > 0", "name": "positive", "on_violation": "drop"}
    second = {"type": "sql", "rule": "n <> 3", "name": "not_three", "on_violation": "drop", "max_share": 0.3}
    stage = _stage([], [first, second])
    stage.open(pa.schema([("n", pa.int64())]))
    list(stage.process(chunk({"n": [0, 0, 0, 0, 1, 2, 3]})))
    with pytest.raises(DataQualityError, match=r"'not_three'.*1 of 3"):
        stage.finish()


def test_stage_without_rows_has_no_share_to_judge() -> None:
    rule = {"type": "sql", "rule": "n < 10", "name": "small", "on_violation": "drop", "max_share": 0}
    assert _run(_stage([], [rule]), chunk({"n": pa.array([], pa.int64())})) == []


def test_policy_that_cannot_judge_a_row_names_file_row_and_rule() -> None:
    stage = _stage([], [{"type": "sql", "rule": "n::INT > 0", "name": "positive"}])
    with pytest.raises(ConvertError, match=r"file in/flights.csv, row policy 'positive': row 12: 'n::INT > 0': .*'x'"):
        _run(stage, BAD)


def test_policy_without_its_column_blames_no_row() -> None:
    stage = _stage([], [{"type": "range", "column": "q", "min": 0, "name": "positive"}])
    with pytest.raises(
        ConvertError, match=r"file in/flights.csv, row policy 'positive': expected column 'q'; found: n$"
    ):
        _run(stage, BAD)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("FAIL", OnViolation.FAIL), ("OPTIONAL", OnViolation.DROP), ("ERR_FILE", OnViolation.QUARANTINE)],
)
def test_gobblins_row_policy_types_are_understood_and_written_in_our_words(given: str, meant: OnViolation) -> None:
    spec = RowPolicySpec.model_validate({"type": "sql", "name": "a", "rule": "true", "on_violation": given})
    assert spec.on_violation is meant
    assert f'"on_violation":"{meant}"' in spec.model_dump_json()


@pytest.mark.parametrize(("given", "meant"), [("FAIL", True), ("FAILED", True), ("OPTIONAL", False), (False, False)])
def test_gobblins_task_policy_types_are_understood(given: object, meant: bool) -> None:
    assert TaskPolicySpec.model_validate({"type": "row_count", "enforce": given}).enforce is meant


def test_share_with_fail_is_refused() -> None:
    with pytest.raises(ValidationError, match="max_share needs on_violation drop or quarantine"):
        RowPolicySpec.model_validate({"type": "sql", "name": "a", "on_violation": "fail", "max_share": 0.1})


def test_names_that_a_report_could_not_tell_apart_are_refused() -> None:
    twice = {"name": "all", "converters": [NUMBERS | {"on_error": "skip"}] * 2}
    with pytest.raises(ValidationError, match="row policies and of converters with on_error must differ, got columns"):
        BranchSpec.model_validate(twice)
    assert BranchSpec.model_validate({"name": "all", "converters": [NUMBERS] * 2}).name == "all"
