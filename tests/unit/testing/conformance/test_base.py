"""Each broken part fails the tests that name what it breaks, and no others; the message says what the protocol
demands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gobblin_dagster.testing.conformance.base import Conformance

BROKEN = Path(__file__).with_name("broken.py")
EXPECTED = {
    "TestOverwritingStorage": {
        "test_move_onto_a_file_changes_neither",
        "test_move_raced_onto_one_target_has_one_winner",
    },
    "TestForgetfulStore": {
        "test_history_begins_with_a_later_commit",
        "test_removed_files_are_left_out_from_then_on_and_older_snapshots_hold_them",
        "test_renewal_prolongs_what_is_ours_and_leaves_out_what_is_not",
    },
    "TestSloppyConverter": {
        "test_chunks_have_the_schema_that_was_announced",
        "test_rows_inside_a_larger_batch_are_taken_alone",
        "test_schema_that_it_cannot_take_is_refused",
    },
    "TestListPolicy": {
        "test_batches_are_judged_one_by_one",
        "test_flags_are_one_boolean_for_each_row",
        "test_reason_is_one_line",
        "test_rows_inside_a_larger_batch_are_judged_alone",
        "test_rows_pass_as_expected",
    },
    "TestTalkativePolicy": {
        "test_detail_is_one_line",
        "test_fresh_object_says_the_same_again",
    },
    "TestPublishedBackwards": {
        "test_bytes_of_alike_files_are_joined",
        "test_rows_are_counted",
        "test_rows_come_back_with_their_types",
    },
    "TestFirstFork": {
        "test_batches_may_be_cut_anywhere",
        "test_schema_gives_one_flag_for_each_branch",
    },
    "TestLinesFormat": {
        "test_bytes_read_grow_to_what_was_taken",
        "test_later_file_that_lacks_a_column_is_refused",
        "test_rows_are_counted",
    },
    "TestLeavingWriter": {
        "test_abort_leaves_nothing",
        "test_abort_takes_finished_files_too",
        "test_attempts_do_not_meet",
        "test_files_lie_where_the_context_says",
        "test_full_disk_is_a_storage_error",
    },
    "TestHastyPublisher": {
        "test_only_what_the_branch_holds_is_removed",
        "test_publishing_is_pure",
        "test_subfolder_is_a_plain_relative_path",
    },
    "TestAppendStep": {
        "test_step_may_be_done_again",
        "test_step_that_was_killed_anywhere_is_finished",
        "test_two_processes_may_do_it_at_once",
    },
    "TestForgetfulSource": {
        "test_committed_rows_are_counted",
        "test_only_selected_datasets_are_offered",
        "test_rows_are_read_as_expected",
        "test_what_was_committed_is_not_offered_again",
        "test_work_unit_may_be_read_again_elsewhere",
        "test_work_units_share_no_position",
    },
    "TestForgetfulExtractor": {
        "test_rows_are_read_as_expected",
        "test_work_unit_may_be_read_again",
    },
}
"""The tests that fail, by class."""


@pytest.fixture(scope="module")
def report() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(BROKEN), "-q", "-p", "no:cacheprovider", "--tb=short", "-rfE"],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("broken", EXPECTED)
def test_broken_part_fails_where_it_is_broken(report: str, broken: str) -> None:
    failed = re.findall(rf"^FAILED \S+::{broken}::(\w+)", report, re.MULTILINE)
    assert set(failed) == EXPECTED[broken], report


def test_failure_says_what_the_protocol_demands(report: str) -> None:
    sentence = "`move` never overwrites: onto a file it raises FileExistsError and changes neither."
    assert f"gobblin_dagster.core.storage.Storage demands: {sentence}" in report
    assert "DID NOT RAISE FileExistsError" in report


def test_fixture_that_nobody_gave_is_named(report: str) -> None:
    assert "TestNothingGiven needs a fixture `open_one` that returns a function that takes a clock and opens" in report


def test_attribute_that_nobody_set_is_named() -> None:
    class Shelf(Conformance):
        boards: int

    with pytest.raises(AttributeError, match=r"^Shelf needs the attribute `boards`; .* stands in .*\.Shelf\.$"):
        assert Shelf().boards
    with pytest.raises(AttributeError, match="'Shelf' object has no attribute 'nails'"):
        assert Shelf().nails  # type: ignore[attr-defined]  # a misspelt one is none


def test_without_pytest_the_message_says_what_to_install() -> None:
    program = "import sys; sys.modules['pytest'] = None; import gobblin_dagster.testing.conformance"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'gobblin-dagster[conformance]'" in done.stderr
