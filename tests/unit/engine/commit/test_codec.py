from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from gobblin_dagster.core.commit import (
    CommitReport,
    ManualChange,
    SequenceState,
    StoredSequence,
    body_digest,
    canonical_json,
)
from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.core.places import AS_STORED
from gobblin_dagster.core.startpoint import Startpoint, Upcoming
from gobblin_dagster.core.task_state import PolicyOutcome, PolicyResult, QueueStats, TaskFailure
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.commit.codec import decode_sequence, encode_sequence
from tests.unit.engine.commit.test_steps import MarkStep
from tests.unit.engine.commit.world import NOW, World


def test_sequence_survives_the_store() -> None:
    report = CommitReport(
        low=LongWatermark(0),
        expected_high=LongWatermark(20),
        rows_by_branch={"häil": 10},
        policies=(PolicyOutcome("row_count", "main", PolicyResult.PASSED, enforced=True, detail="10 of 10"),),
        failures=(TaskFailure("source", "the server hung up", transient=True),),
        queues={"main": QueueStats(8, puts=3)},
        startpoint=Startpoint("job", "a", Upcoming(), NOW, NOW, "anna@host", pinned=CommittedRanges(LongWatermark, {})),
        change=ManualChange("replay", "anna@host", "rule amount"),
    )
    sequence = World().sequence()
    sequence = replace(sequence, steps=(*sequence.steps, MarkStep("/lake/mark")), report=report)
    stored = encode_sequence(sequence, AS_STORED)
    assert (stored.state, stored.digest) == (SequenceState.PREPARED, body_digest(stored.body))
    assert decode_sequence(stored, AS_STORED) == sequence


def test_files_are_not_repeated_where_the_renames_name_them() -> None:
    sequence = World().sequence()
    assert encode_sequence(sequence, AS_STORED).body.count(sequence.files[0].path) == 1


def test_files_that_no_rename_names_survive_the_store() -> None:
    sequence = World().sequence()
    elsewhere = replace(sequence.files[0], path="/lake/elsewhere")
    for files in ((elsewhere, *sequence.files[1:]), ()):
        other = replace(sequence, files=files)
        assert decode_sequence(encode_sequence(other, AS_STORED), AS_STORED) == other


def test_sequence_of_the_first_format_is_read() -> None:
    """One may be stored before an upgrade and finished after it."""
    sequence = World().sequence()
    stored = encode_sequence(sequence, AS_STORED)
    body = json.loads(stored.body)
    del body["moved"]
    body |= {"format": "CommitSequence/1", "files": [asdict(file) for file in sequence.files]}
    assert decode_sequence(_with_body(stored, lambda _: canonical_json(body)), AS_STORED) == sequence


def test_sequence_whose_report_has_no_format_is_read() -> None:
    """Sequences of step stores carried an empty one."""
    sequence = World().sequence()
    stored = encode_sequence(sequence, AS_STORED)
    body = json.loads(stored.body) | {"report": {}}
    assert decode_sequence(_with_body(stored, lambda _: canonical_json(body)), AS_STORED) == sequence


@pytest.mark.parametrize("report", [{"format": "CommitReport/2"}, {"rows_read": "many"}], ids=["newer", "damaged"])
def test_sequence_whose_report_cannot_be_read_is_refused(report: dict[str, str]) -> None:
    stored = encode_sequence(World().sequence(), AS_STORED)
    body = json.loads(stored.body) | {"report": report}
    with pytest.raises(CorruptRecordError, match=r"Commit sequence c1.*(CommitReport/2|rows_read)"):
        decode_sequence(_with_body(stored, lambda _: canonical_json(body)), AS_STORED)


def test_sequence_without_time_is_refused() -> None:
    with pytest.raises(UsageError, match="has no creation time"):
        encode_sequence(replace(World().sequence(), created_at=None), AS_STORED)


def _with_body(stored: StoredSequence, change: Callable[[str], str]) -> StoredSequence:
    body = change(stored.body)
    return replace(stored, body=body, digest=body_digest(body))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param(lambda s: replace(s, body=s.body[:-9]), "does not match its digest", id="torn"),
        pytest.param(lambda s: replace(s, body=s.body.replace("c1-1", "c1-9")), "digest", id="changed"),
        pytest.param(lambda s: replace(s, id="c2"), "belongs to another sequence", id="under another row"),
        pytest.param(lambda s: replace(s, created_at=s.created_at.replace(tzinfo=None)), "no time zone", id="no zone"),
        pytest.param(lambda s: _with_body(s, lambda b: "{"), "JSONDecodeError", id="no JSON"),
        pytest.param(lambda s: _with_body(s, lambda b: b.replace("Sequence/3", "Sequence/4")), "format", id="newer"),
        pytest.param(lambda s: _with_body(s, lambda b: b.replace('"moved"', '"moves"')), "moved", id="no files"),
        pytest.param(lambda s: _with_body(s, lambda b: b.replace('"long"', '"wide"')), "wide", id="unknown watermark"),
        pytest.param(lambda s: _with_body(s, lambda b: b.replace("rename_file", "fly")), "fly", id="unknown step"),
    ],
)
def test_damaged_record_is_refused(damage: Callable[[StoredSequence], StoredSequence], problem: str) -> None:
    stored = damage(encode_sequence(World().sequence(), AS_STORED))
    with pytest.raises(CorruptRecordError, match=problem) as caught:
        decode_sequence(stored, AS_STORED)
    assert caught.value.what == f"Commit sequence {stored.id} of dataset 'a'"
