"""Each broken part fails the tests that name what it breaks, and no others; the message says what the protocol demands."""

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
        "test_removed_files_are_left_out_from_then_on_and_older_snapshots_hold_them",
        "test_renewal_prolongs_what_is_ours_and_leaves_out_what_is_not",
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
